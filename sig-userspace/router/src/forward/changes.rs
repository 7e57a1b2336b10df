//! What is to be written to a packet.

use sig_common::router::passage::Passage;

/// Bytes to be written to a packet: offset and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes(Vec<(usize, Vec<u8>)>);

impl Changes {
    /// Pointers and segment identifiers of a SCION path, as far as the packet got.
    pub(super) fn of(passage: &Passage) -> Self {
        let mut changes = Self::default();
        let path = passage.path as usize;
        let (old, new) = passage.meta();
        if new != old {
            changes.add(path, &new.to_be_bytes());
        }
        for change in passage.changes {
            if change.new != change.old {
                changes.add(path + change.offset(), &change.new.to_be_bytes());
            }
        }
        changes
    }

    pub(super) fn add(&mut self, offset: usize, bytes: &[u8]) {
        self.0.push((offset, bytes.to_vec()));
    }

    /// Writes them. Offsets were taken from the packet itself; one that were not would be left out.
    pub(super) fn write(&self, packet: &mut [u8]) {
        for (offset, bytes) in &self.0 {
            if let Some(place) = packet.get_mut(*offset..offset + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }
}
