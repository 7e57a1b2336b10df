//! Service resolutions that wait for an answer.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sig_common::addr::IsdAs;
use tokio::sync::oneshot;

/// Resolutions that wait for an answer. They share the socket with QUIC, whose packets all have a bit set that the
/// answers, which are protobuf maps, do not have in their first byte (RFC 9000, section 17: the fixed bit).
#[derive(Debug, Default)]
pub(super) struct Resolutions(Mutex<Vec<(IsdAs, oneshot::Sender<Bytes>)>>);

/// The fixed bit of QUIC packets.
const FIXED_BIT: u8 = 0x40;

impl Resolutions {
    /// From now on, an answer from this AS is waited for.
    pub(super) fn expect(&self, isd_as: IsdAs) -> oneshot::Receiver<Bytes> {
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(_, waiting)| !waiting.is_closed());
        waiting.push((isd_as, sender));
        answer
    }

    /// Hands over a datagram if it can be an answer that is waited for.
    pub(super) fn take(&self, from: IsdAs, datagram: &Bytes) -> bool {
        if datagram.first().is_none_or(|byte| byte & FIXED_BIT != 0) {
            return false;
        }
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waiting.len();
        for (_, sender) in waiting.extract_if(.., |(isd_as, _)| *isd_as == from) {
            // The asker may have given up.
            let _ = sender.send(datagram.clone());
        }
        waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"\x0a\x18\x0a\x04QUIC\x12\x10\x0a\x0e10.0.0.3:30254";

    #[test]
    fn an_answer_reaches_everyone_who_asked_that_as() {
        let resolutions = Resolutions::default();
        let [mut first, mut second, mut other] = [1, 1, 2].map(|n| resolutions.expect(IsdAs(n)));
        assert!(resolutions.take(IsdAs(1), &Bytes::from_static(ANSWER)));
        assert_eq!(first.try_recv().as_deref(), Ok(ANSWER));
        assert_eq!(second.try_recv().as_deref(), Ok(ANSWER));
        assert!(other.try_recv().is_err());
        assert!(!resolutions.take(IsdAs(1), &Bytes::from_static(ANSWER)));
    }

    #[test]
    fn quic_packets_are_no_answers() {
        let resolutions = Resolutions::default();
        let mut answer = resolutions.expect(IsdAs(1));
        for quic in [&[0xc0, 0, 0, 0, 1][..], &[0x40; 30], &[]] {
            assert!(!resolutions.take(IsdAs(1), &Bytes::copy_from_slice(quic)));
        }
        assert!(answer.try_recv().is_err());
    }

    #[test]
    fn those_who_gave_up_are_forgotten() {
        let resolutions = Resolutions::default();
        for _ in 0..10 {
            drop(resolutions.expect(IsdAs(1)));
        }
        assert_eq!(resolutions.0.lock().unwrap().len(), 1);
    }
}
