//! Keys and values of the BPF maps.
