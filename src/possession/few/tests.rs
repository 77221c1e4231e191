use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Push,
    Clear,
    SwapRemove(usize),
    Take,
    TakeFirst(usize),
    SplitOff(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Push),
        1 => Just(Op::Clear),
        2 => (0..4usize).prop_map(Op::SwapRemove),
        1 => Just(Op::Take),
        2 => (0..4usize).prop_map(Op::TakeFirst),
        2 => (0..4usize).prop_map(Op::SplitOff),
    ]
}

proptest! {
    #[test]
    fn few_are_what_a_vector_would_have(ops in prop::collection::vec(op(), 1..40)) {
        let (mut few, mut all) = (Few::default(), Vec::new());
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Push => {
                    few.push(number);
                    all.push(number);
                }
                Op::Clear => {
                    few.clear();
                    all.clear();
                }
                Op::SwapRemove(at) if at < all.len() => {
                    prop_assert_eq!(few.swap_remove(at), all.swap_remove(at));
                }
                Op::SwapRemove(_) => {}
                Op::Take => prop_assert_eq!(few.take(), std::mem::take(&mut all)),
                Op::TakeFirst(many) => {
                    let (many, mut taken) = (many.min(all.len()), Vec::new());
                    few.take_first(many, |one| taken.push(one));
                    prop_assert_eq!(taken, all.drain(..many).collect::<Vec<_>>());
                }
                Op::SplitOff(at) => {
                    let at = at.min(all.len());
                    prop_assert_eq!(few.split_off(at), all.split_off(at));
                }
            }
            prop_assert_eq!(&*few, &*all);
            few.iter_mut().zip(&mut all).for_each(|(one, other)| (*one, *other) = (*one + 100, *other + 100));
            prop_assert_eq!(&*few, &*all);
        }
    }
}
