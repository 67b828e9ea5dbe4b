// Integer arithmetic in A: signed or unsigned, of 32 or 64 bits. The including shader must define `alias A`,
// the type of its first operand.

fn int_sign(a: A) -> A {
    return select(A(0), A(1), a > A(0)) - select(A(0), A(1), a < A(0));
}

// The quotient rounded towards zero; zero if the divisor is zero, because hardware differs there.
fn idiv(a: A, b: A) -> A {
    if (b == A(0)) { return A(0); }
    // The minimum divided by -1 wraps, which hardware does not guarantee.
    if (A(0) - b == A(1) && a < A(0)) { return A(0) - a; }
    return a / b;
}

// The remainder with the sign of the divisor; zero if the divisor is zero.
fn irem(a: A, b: A) -> A {
    // The divisor -1 is a special case, because the quotient of the minimum overflows.
    if (b == A(0) || (A(0) - b == A(1) && a < A(0))) { return A(0); }
    let r = a % b;
    return select(r, r + b, r != A(0) && (r < A(0)) != (b < A(0)));
}

// a^n by repeated squaring, wrapping. The result of a negative power is rounded towards zero.
fn ipow(a: A, n: A) -> A {
    if (n < A(0)) {
        if (a == A(1)) { return A(1); }
        if (A(0) - a == A(1)) { return select(A(1), a, (n & A(1)) == A(1)); }
        return A(0);
    }
    var base = a;
    var exponent = n;
    var y = A(1);
    while (exponent > A(0)) {
        if ((exponent & A(1)) == A(1)) { y *= base; }
        base *= base;
        exponent >>= 1u;
    }
    return y;
}
