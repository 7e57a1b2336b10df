//! gRPC's unary calls over HTTP/2, which lies in the one stream of a QUIC connection.

use bytes::{BufMut as _, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

mod client;
mod server;

pub(super) use client::Client;
pub(super) use server::serve;

/// Content type of messages; others that begin with it are gRPC too.
const CONTENT_TYPE: &str = "application/grpc";
/// Number of the [`Code`](super::Code) of an answer, 0 for success.
const STATUS: &str = "grpc-status";
/// Message of an error, percent-encoded.
const MESSAGE: &str = "grpc-message";
/// Time after which the client is no longer interested.
const TIMEOUT: &str = "grpc-timeout";
/// Most bytes of headers.
const MAX_HEADERS: u32 = 16 << 10;
/// Bytes in front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A message as it goes into a body.
fn frame(message: &[u8]) -> Bytes {
    let mut body = BytesMut::with_capacity(PREFIX + message.len());
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    body.extend_from_slice(message);
    body.freeze()
}

/// The one message in a body.
fn unframe(mut body: Bytes) -> Result<Bytes, &'static str> {
    let Some((&[compressed, a, b, c, d], _)) = body.split_first_chunk::<PREFIX>() else {
        return Err("the body contains no message");
    };
    let message = body.split_off(PREFIX);
    if compressed != 0 {
        Err("the message is compressed")
    } else if message.len() != u32::from_be_bytes([a, b, c, d]) as usize {
        Err("the body is not a single gRPC message")
    } else {
        Ok(message)
    }
}

/// What a header does not carry as it is, beside what is not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Text as it goes into a header.
fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The reverse. What is not well encoded stays as it is.
fn percent_decode(encoded: &[u8]) -> String {
    percent_encoding::percent_decode(encoded)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_holds_one_plain_message() {
        for message in [&b""[..], b"x", &[7; 1000]] {
            assert_eq!(unframe(frame(message)).as_deref(), Ok(message));
        }
        assert_eq!(&frame(b"abc")[..], b"\0\0\0\0\x03abc");
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x01",
            b"\0\0\0\0\x01ab",
            b"\x01\0\0\0\x01a",
            b"\0\xff\xff\xff\xff",
        ] {
            assert!(unframe(Bytes::from_static(bad)).is_err(), "{bad:02x?}");
        }
    }

    #[test]
    fn messages_of_errors_survive_their_way_through_a_header() {
        for text in ["", "no such method", "100 % für Ümläute\n", "%41"] {
            let encoded = percent_encode(text);
            assert!(encoded.bytes().all(|b| (b' '..=b'~').contains(&b)));
            assert_eq!(percent_decode(encoded.as_bytes()), text);
        }
        assert_eq!(percent_decode(b"%4"), "%4");
        assert_eq!(percent_decode(b"%zz%41"), "%zzA");
        assert_eq!(percent_decode(b"%ff"), "\u{fffd}");
    }
}
