//! Runs every case on the sandbox.

use crate::common::OnSandbox;
use behaviour::cases::named;

macro_rules! on_the_sandbox {
    ($($module:ident :: $case:ident),* $(,)?) => {
        $(#[tokio::test(start_paused = true)]
        async fn $case() {
            run(stringify!($case)).await;
        })*
    };
}
behaviour::each_case!(on_the_sandbox);

async fn run(name: &str) {
    let cluster = OnSandbox::start().await;
    let case = named(name).expect("the case is in the list");
    if let Err(error) = case.run(&cluster.environment).await {
        panic!("{error:#}");
    }
    cluster.assert_no_violations();
}
