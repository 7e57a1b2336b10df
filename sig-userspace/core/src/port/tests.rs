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
