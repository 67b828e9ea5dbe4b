//! What a text asks for, before a driver compiles it.

/// The memory that a text declares, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Demand {
    /// Of a workgroup.
    pub workgroup: u32,
    /// Of an invocation.
    pub private: u32,
    /// Of the parameters of the program, with padding to 16; `None` if it is not known.
    pub params: Option<usize>,
}

impl Demand {
    /// Returns the memory of a text; none if it does not compile, which its compilation reports.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn of(text: &str) -> Self {
        use wgpu::naga::{AddressSpace, TypeInner, front::wgsl};
        let Ok(module) = wgsl::parse_str(text) else { return Self::default() };
        let context = module.to_ctx();
        let size = |ty| module.types[ty].inner.size(context);
        let globals = |space| {
            let globals = module.global_variables.iter().filter(move |(_, it)| it.space == space);
            globals.map(|(_, global)| size(global.ty)).fold(0, u32::saturating_add)
        };
        let functions = module.functions.iter().map(|(_, function)| function);
        let functions = functions.chain(module.entry_points.iter().map(|entry| &entry.function));
        let locals = functions.flat_map(|function| function.local_variables.iter());
        let locals = locals.map(|(_, local)| size(local.ty)).fold(0, u32::saturating_add);
        // What follows the parameters of the program.
        let launch = module.types.iter().find_map(|(_, ty)| match &ty.inner {
            TypeInner::Struct { members, .. } if ty.name.as_deref() == Some("Params") => {
                members.iter().find(|member| member.name.as_deref() == Some("launch"))
            }
            _ => None,
        });
        Self {
            workgroup: globals(AddressSpace::WorkGroup),
            private: globals(AddressSpace::Private).saturating_add(locals),
            params: launch.map(|member| member.offset as usize),
        }
    }

    /// Browsers check it.
    #[cfg(target_arch = "wasm32")]
    pub fn of(_text: &str) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_text_is_counted() {
        let demand = Demand::of(
            "var<workgroup> tile: array<vec4<f32>, 256>;
            var<private> counter: u32;
            struct Params { a: u32, b: vec2<f32>, @align(16) launch: vec4<u32> }
            @group(0) @binding(0) var<uniform> p: Params;
            fn f() -> f32 { var list: array<f32, 10>; return list[3] + p.b.x; }
            @compute @workgroup_size(64) fn main() { var sum = f(); sum += tile[0].x; }",
        );
        assert_eq!((demand.workgroup, demand.private), (4096, 4 + 40 + 4));
        assert_eq!(demand.params, Some(16));
    }
}
