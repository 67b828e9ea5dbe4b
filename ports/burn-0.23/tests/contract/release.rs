//! The methods of Burn 0.23 that other releases have otherwise, for `through`.

macro_rules! boolean_methods_of_release {
    () => {
        fn bool_scatter_or(dim: usize, tensor: B, indices: I, value: B) -> B {
            let [tensor, indices, value] = [tensor, indices, value].map(Convert::converted);
            Port::bool_scatter(dim, tensor, indices, value, Update::Add).converted()
        }

        fn bool_select_or(tensor: B, dim: usize, indices: I, value: B) -> B {
            let [tensor, indices, value] = [tensor, indices, value].map(Convert::converted);
            Port::bool_select_assign(tensor, dim, indices, value, Update::Add).converted()
        }
    };
}

macro_rules! module_methods_of_release {
    () => {
        back! {
            attention(
                query: F, key: F, value: F, mask: Option<B>, attn_bias: Option<F>, options: AttentionModuleOptions
            ) -> F;
        }

        fn avg_pool2d(
            x: F,
            kernel: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            counts_padding: bool,
            ceil_mode: bool,
        ) -> F {
            let x = x.converted();
            Port::avg_pool2d(x, kernel, stride, padding, [1; 2], counts_padding, ceil_mode)
                .converted()
        }

        fn avg_pool2d_backward(
            x: F,
            grad: F,
            kernel: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            counts_padding: bool,
            ceil_mode: bool,
        ) -> F {
            let [x, grad] = [x, grad].map(Convert::converted);
            Port::avg_pool2d_backward(
                x,
                grad,
                kernel,
                stride,
                padding,
                [1; 2],
                counts_padding,
                ceil_mode,
            )
            .converted()
        }
    };
}
