//! Doubly linked lists over slot numbers: every slot is in at most one list of a [`Links`].

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

/// The neighbours of every slot.
#[derive(Debug)]
pub(super) struct Links(Box<[(u32, u32)]>);

/// Ends and length of one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
        len: 0,
    };

    /// The first slot, if any.
    #[inline]
    pub(super) fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}

impl Links {
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![(NIL, NIL); slots].into_boxed_slice())
    }

    /// A list of all slots, in order.
    pub(super) fn all(&mut self) -> List {
        let mut list = List::EMPTY;
        for at in 0..self.0.len() as u32 {
            self.push_back(&mut list, at);
        }
        list
    }

    #[inline]
    pub(super) fn push_back(&mut self, list: &mut List, at: u32) {
        self.0[at as usize] = (list.tail, NIL);
        match list.tail {
            NIL => list.head = at,
            tail => self.0[tail as usize].1 = at,
        }
        list.tail = at;
        list.len += 1;
    }

    #[inline]
    pub(super) fn push_front(&mut self, list: &mut List, at: u32) {
        self.0[at as usize] = (NIL, list.head);
        match list.head {
            NIL => list.tail = at,
            head => self.0[head as usize].0 = at,
        }
        list.head = at;
        list.len += 1;
    }

    /// `at` must be in `list`.
    #[inline]
    pub(super) fn remove(&mut self, list: &mut List, at: u32) {
        let (previous, next) = self.0[at as usize];
        match previous {
            NIL => list.head = next,
            previous => self.0[previous as usize].1 = next,
        }
        match next {
            NIL => list.tail = previous,
            next => self.0[next as usize].0 = previous,
        }
        list.len -= 1;
    }

    #[inline]
    pub(super) fn pop_front(&mut self, list: &mut List) -> Option<u32> {
        let at = list.front()?;
        self.remove(list, at);
        Some(at)
    }

    /// The slots of a list, for checks.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = u32> {
        core::iter::successors(list.front(), |&at| {
            let next = self.0[at as usize].1;
            (next != NIL).then_some(next)
        })
        .take(self.0.len() + 1)
    }
}
