//! The kernel side: links, routes, neighbours, BPF programs.
