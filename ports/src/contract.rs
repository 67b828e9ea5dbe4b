//! What a type of one contract is in the other.

/// Converts a value of one contract to the type of the other.
pub trait Convert {
    type Other;

    fn converted(self) -> Self::Other;
}
