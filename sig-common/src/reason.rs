//! Why a packet was dropped.
