//! Tables, sessions and the worker: a batch in, a batch out, free of I/O.
