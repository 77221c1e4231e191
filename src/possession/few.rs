//! A list that has one element or none as a rule, and asks for no memory then.

use std::ops::{Deref, DerefMut};

#[derive(Default)]
pub(super) enum Few<T> {
    #[default]
    None,
    One(T),
    // A vector would be the larger part of it.
    #[expect(clippy::box_collection, reason = "it takes a third of the room where it is not there")]
    Many(Box<Vec<T>>),
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, one: T) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(one),
            Self::One(first) => Self::Many(Box::new(vec![first, one])),
            Self::Many(mut all) => {
                all.push(one);
                Self::Many(all)
            }
        }
    }

    /// Forgets all of them, and keeps the memory that they had.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Many(all) => all.clear(),
            _ => *self = Self::None,
        }
    }

    /// Takes one out, and puts the last one in its place.
    pub(super) fn swap_remove(&mut self, at: usize) -> T {
        if let Self::Many(all) = self {
            return all.swap_remove(at);
        }
        let only = if at == 0 { std::mem::take(self) } else { Self::None };
        let Self::One(one) = only else { panic!("BUG: an element that is not there") };
        one
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> Vec<T> {
        match std::mem::take(self) {
            Self::None => Vec::new(),
            Self::One(one) => vec![one],
            Self::Many(all) => *all,
        }
    }

    /// Takes so many of the first ones out. There are as many.
    pub(super) fn take_first(&mut self, many: usize, mut each: impl FnMut(T)) {
        match self {
            Self::Many(all) => all.drain(..many).for_each(each),
            _ if many == 0 => {}
            _ => {
                if let Self::One(one) = std::mem::take(self) {
                    each(one);
                }
            }
        }
    }

    /// Takes all out but so many of the first ones. There are as many.
    pub(super) fn split_off(&mut self, at: usize) -> Vec<T> {
        match self {
            Self::Many(all) => all.split_off(at),
            _ if at == 0 => self.take(),
            _ => Vec::new(),
        }
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|one| self.push(one));
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(all) => all,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(one) => std::slice::from_mut(one),
            Self::Many(all) => all,
        }
    }
}

#[cfg(test)]
mod tests;
