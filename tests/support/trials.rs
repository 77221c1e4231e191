//! Asynchronous tests for a harness of our own, in a program that has this as `trials`.

use std::future::Future;

pub(crate) fn run(test: impl Future<Output = ()>) {
    crate::support::runtime().block_on(test);
}

/// A trial of each function, by its name.
macro_rules! trials {
    ($($name:ident,)*) => {
        vec![$(libtest_mimic::Trial::test(stringify!($name), || {
            crate::trials::run($name());
            Ok(())
        }),)*]
    };
}
pub(crate) use trials;
