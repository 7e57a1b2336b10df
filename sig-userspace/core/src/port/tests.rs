use proptest::prelude::*;

use super::umem::*;

#[test]
fn a_packet_grows_into_its_headroom_without_moving() {
    let (area, pool) = Area::on_heap(4);
    let mut free = FreeList::new(pool, 128);
    let mut frame = free.take().expect("a chunk is free");
    frame.place(600, 3);
    frame.bytes_mut(&area).copy_from_slice(b"abc");
    frame.place(598, 5);
    frame.bytes_mut(&area)[..2].copy_from_slice(b"yz");
    assert_eq!(frame.bytes(&area), b"yzabc");
    free.put(frame);
}

#[test]
fn chunks_come_back_to_the_pool_when_a_list_ends() {
    let (_area, pool) = Area::on_heap(300);
    let mut free = FreeList::new(pool.clone(), 128);
    let held: Vec<Frame> = std::iter::from_fn(|| free.take()).collect();
    assert_eq!(held.len(), 300);
    assert!(pool.is_empty());
    held.into_iter().for_each(|frame| free.put(frame));
    drop(free);
    assert_eq!(pool.len(), 300);
}

#[test]
fn a_descriptor_outside_the_area_or_across_two_chunks_is_refused() {
    let (area, pool) = Area::on_heap(2);
    let mut free = FreeList::new(pool, 128);
    let address = free.take().expect("a chunk is free").into_address();
    // SAFETY: each call below fails or concerns the chunk given away above, once.
    unsafe {
        assert!(area.frame_at(2 * CHUNK_SIZE as u64, 1).is_none());
        assert!(area.frame_at(CHUNK_SIZE as u64 - 10, 11).is_none());
        free.put(area.frame_at(address, 100).expect("within its chunk"));
    }
}

#[test]
#[should_panic(expected = "another area")]
fn a_frame_of_another_area_is_refused() {
    let (area, _pool) = Area::on_heap(1);
    let (_other, pool) = Area::on_heap(1);
    let frame = FreeList::new(pool, 128).take().expect("a chunk is free");
    let _ = frame.bytes(&area);
}

#[test]
fn what_is_lent_to_somebody_who_is_gone_is_found_again() {
    let (area, pool) = Area::on_heap_with_jumbo(6, 2);
    let borrower = |number| Borrower::new(std::num::NonZeroU16::new(number).expect("not 0"));
    let (gone, other) = (borrower(1), borrower(2));
    let mut free = FreeList::new(pool.clone(), 128);
    let mut addresses = Vec::new();
    for to in [gone, gone, other, gone] {
        let frame = free.take().expect("one is free");
        area.lend(&frame, to);
        addresses.push(frame.into_address());
    }
    let mut jumbo = free.take_jumbo().expect("one is free");
    jumbo.place(HEADROOM, 9000);
    area.lend(&jumbo, gone);
    let parts: Vec<u64> = area.give_away(jumbo).map(|(address, _)| address).collect();
    // SAFETY: given away above, and back once.
    let back = unsafe { (area.frame_at(addresses[0], 60), area.returned(parts[0])) };
    assert!(matches!(back.1, Returned::Part));
    let back = back.0.expect("a chunk");
    area.settle(&back);
    free.put(back);

    assert!(area.is_lent_to(gone) && area.is_lent_to(other));
    assert!(!area.is_lent_to(borrower(3)), "he never had anything");
    // SAFETY: nobody has them any more.
    let lost = unsafe { area.reclaim(gone) };
    assert_eq!(lost.iter().filter(|frame| frame.is_jumbo()).count(), 1);
    assert_eq!(lost.len(), 3);
    pool.put(lost);
    assert!(!area.is_lent_to(gone) && area.is_lent_to(other));
    // SAFETY: as above.
    assert_eq!(unsafe { area.reclaim(gone) }.len(), 0);
    drop(free);
    assert_eq!((pool.len(), pool.jumbo_len()), (5, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_tag_stands_behind_the_addresses_and_the_rest_as_before(
        bytes in proptest::collection::vec(any::<u8>(), 0..9300),
        start in 0usize..=JUMBO_SIZE,
        tag in any::<[u8; 4]>(),
    ) {
        let (area, pool) = Area::on_heap_with_jumbo(1, 1);
        let mut free = FreeList::new(pool, 0);
        let mut frame = free.take_for(bytes.len()).expect("one is free");
        // Often at one of the ends.
        let last = frame.size() - bytes.len();
        let start = if start % 3 == 0 { start % 8 } else { start };
        frame.place(start.min(last), bytes.len());
        frame.bytes_mut(&area).copy_from_slice(&bytes);
        let fits = frame.size() - bytes.len() >= 4 && (frame.headroom() >= 4 || frame.tailroom() >= 4);
        let is_put = frame.put_tag(&area, tag);
        prop_assert_eq!(is_put, bytes.len() >= 14 && fits);
        let expected = match is_put {
            true => [&bytes[..12], &tag, &bytes[12..]].concat(),
            false => bytes,
        };
        prop_assert_eq!(frame.bytes(&area), expected);
        free.put(frame);
    }

    /// Workers take frames, write to them, send them and get them back part by part.
    #[test]
    fn frames_of_both_sizes_do_not_overlap_and_are_not_lost(
        steps in proptest::collection::vec((any::<bool>(), 0usize..9300, 0usize..3000, any::<u8>()), 1..200),
    ) {
        const CHUNKS: u32 = 8;
        const JUMBO: u32 = 20;
        let (area, pool) = Area::on_heap_with_jumbo(CHUNKS, JUMBO);
        prop_assert_eq!(area.bytes(), (8 + 3 * 20) * CHUNK_SIZE);
        let mut free = FreeList::new(pool.clone(), 0);
        let mut held: Vec<(Frame, u8)> = Vec::new();
        let mut sent: Vec<u64> = Vec::new();
        for (takes, len, start, name) in steps {
            if takes {
                if let Some(mut frame) = free.take_for(len) {
                    prop_assert!(frame.tailroom() >= len);
                    prop_assert_eq!(frame.is_jumbo(), HEADROOM + len > CHUNK_SIZE);
                    let start = start.min(frame.size() - len);
                    frame.place(start, len);
                    frame.bytes_mut(&area).fill(name);
                    held.push((frame, name));
                }
            } else if let Some((frame, name)) = held.pop() {
                prop_assert!(frame.bytes(&area).iter().all(|byte| *byte == name));
                if frame.is_empty() {
                    free.put(frame);
                    continue;
                }
                let (len, most) = (frame.len(), frame.parts());
                let parts: Vec<(u64, u32)> = area.give_away(frame).collect();
                prop_assert!(parts.len() <= most);
                prop_assert_eq!(parts.iter().map(|(_, len)| *len as usize).sum::<usize>(), len);
                prop_assert!(parts.len() == 1 || parts[0].1 >= 512, "headers in one part");
                for (address, len) in parts {
                    prop_assert!(address as usize % CHUNK_SIZE + len as usize <= CHUNK_SIZE);
                    sent.push(address);
                }
            } else {
                let by = start % sent.len().max(1);
                sent.rotate_left(by);
                // SAFETY: each part of what was given away comes back once.
                match sent.pop().map(|address| unsafe { area.returned(address) }) {
                    Some(Returned::Frame(frame)) => free.put(frame),
                    Some(Returned::Strange) => prop_assert!(false, "it is one of ours"),
                    Some(Returned::Part) | None => {}
                }
            }
        }
        for address in sent {
            // SAFETY: as above.
            if let Returned::Frame(frame) = unsafe { area.returned(address) } {
                free.put(frame);
            }
        }
        held.into_iter().for_each(|(frame, _)| free.put(frame));
        drop(free);
        prop_assert_eq!((pool.len(), pool.jumbo_len()), (CHUNKS as usize, JUMBO as usize));
    }
}

#[test]
fn parts_of_no_frame_that_was_given_away_are_strange() {
    let (area, _pool) = Area::on_heap_with_jumbo(2, 1);
    for chunk in [2, 4, 5, 1 << 40] {
        // SAFETY: it is refused.
        let returned = unsafe { area.returned(chunk * CHUNK_SIZE as u64) };
        assert!(matches!(returned, Returned::Strange), "{chunk}");
    }
}

#[test]
fn there_is_no_frame_for_what_fits_none() {
    let (_area, pool) = Area::on_heap_with_jumbo(1, 1);
    let mut free = FreeList::new(pool, 0);
    assert!(free.take_for(JUMBO_SIZE).is_none());
    let jumbo = free.take_for(9000).expect("one is free");
    assert!(free.take_for(9000).is_none());
    free.put(jumbo);
    assert!(free.take_for(9000).is_some());
    let (_area, pool) = Area::on_heap(1);
    assert!(FreeList::new(pool, 0).take_for(9000).is_none());
}
