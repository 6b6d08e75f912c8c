//! The tests of the crate `audit` from outside, one module for each subject.

mod violations;
