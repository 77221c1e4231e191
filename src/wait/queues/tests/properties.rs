//! The wait queues under any order of events.

use proptest::prelude::*;

use super::{model, world};
use crate::tests::explore::CASES;

fn model_op() -> impl Strategy<Value = model::Op> {
    use model::Op;
    let which = any::<usize>;
    let remaining = || {
        prop_oneof![1 => Just(None), 3 => (0..2000u64).prop_map(Some),
        1 => (0..100_000u64).prop_map(Some)]
    };
    prop_oneof![
        3 => (0..400u64).prop_map(Op::Pass),
        1 => (0..31_000u64).prop_map(Op::Pass),
        6 => (0..3usize).prop_map(Op::Join),
        10 => which().prop_map(Op::WaitStep),
        3 => (which(), remaining()).prop_map(|(n, remaining)| Op::Refused(n, remaining)),
        1 => (which(), 0..1000u64).prop_map(|(n, pause)| Op::Unanswered(n, pause)),
        2 => (which(), 1..100_000u64).prop_map(|(n, lease)| Op::Granted(n, lease)),
        2 => which().prop_map(Op::Leave),
        4 => (0..3usize, 1..100_000u64, any::<bool>())
            .prop_map(|(lock, lease, later)| Op::HandOff { lock, lease, later }),
        1 => (0..3usize, proptest::option::of(0..60_000u64))
            .prop_map(|(lock, lease)| Op::HandedOff(lock, lease)),
        1 => (0..3usize, proptest::option::of(0..4u32)).prop_map(|(lock, receivers)| Op::Freed(lock, receivers)),
        1 => (0..3usize, 1..4u32).prop_map(|(lock, others)| Op::StandBack(lock, others)),
        1 => (0..3usize).prop_map(Op::Lost),
        4 => (0..3usize).prop_map(Op::Message),
        6 => Just(Op::Look),
        6 => Just(Op::Confirm),
        1 => Just(Op::Deny),
        1 => Just(Op::Cut),
    ]
}

fn world_op() -> impl Strategy<Value = world::Op> {
    use world::Op;
    prop_oneof![
        2 => (0..150u64).prop_map(Op::Pass),
        6 => (0..3usize).prop_map(Op::Call),
        14 => any::<usize>().prop_map(Op::Run),
        3 => any::<usize>().prop_map(Op::Drop),
        5 => (0..3usize).prop_map(Op::Release),
        4 => (0..3usize).prop_map(Op::HandOff),
        5 => Just(Op::Deliver),
        5 => Just(Op::Drive),
        1 => Just(Op::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * CASES))]

    #[test]
    fn the_queues_do_what_the_naive_model_does(
        ops in prop::collection::vec(model_op(), 1..100),
    ) {
        let mut model = model::Model::new();
        for op in &ops {
            model.run(op);
        }
        model.end();
    }

    #[test]
    fn no_waiter_sleeps_beside_a_free_lock(ops in prop::collection::vec(world_op(), 1..100)) {
        let mut world = world::World::new();
        for op in &ops {
            world.run(op);
        }
        world.end();
    }
}
