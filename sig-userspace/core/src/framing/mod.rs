//! The SIG framing: packing, splitting and reassembly. Pure: bytes in, bytes out, time is an argument.
//!
//! | | |
//! |---|---|
//! | [`Packer`] | where each packet goes: the sender's decisions, without bytes |
//! | [`Encoder`] | packets to frames, byte-wise, for embedding, tests and tools |
//! | [`StreamIds`] | random stream ids that no receiver remembers any more |
//! | [`Reassembler`] | frames to packets: order, reordering, limits, expiry |
//! | [`Decoder`] | the same byte-wise, for embedding, tests and tools |
//!
//! A frame ([`FrameView`]) is a 16-byte header ([`FrameHeader`]) and a payload in which IPv4 and IPv6 packets and
//! parts of packets lie back to back. The *index* of the header is the offset in the payload at
//! which the first packet starts ([`NO_START`]: none does); what lies before it is the tail of
//! a packet that started in an earlier frame of the same stream.

mod decoder;
mod encoder;
mod packer;
mod packet;
mod reassembly;
mod stream_ids;

pub use decoder::{Decoder, FrameError};
pub use encoder::{Encoder, PacketError};
pub use packer::{
    CapacityError, Closed, MAX_CAPACITY, MAX_FRAMES_PER_PACKET, MIN_CAPACITY, MIN_START, Packer,
    Part, Parts, Placement, TooLong,
};
pub use packet::{Malformed, packet_len};
pub use reassembly::{
    Counters, FrameRef, Limits, LimitsError, Occupancy, Outcome, Piece, Reassembler, StreamKey,
};
pub use sig_common::wire::sig_frame::{
    HEADER_LEN as FRAME_HEADER_LEN, Header as FrameHeader, NO_PACKET_STARTS as NO_START,
    STREAM_MASK, View as FrameView,
};
pub use stream_ids::StreamIds;
