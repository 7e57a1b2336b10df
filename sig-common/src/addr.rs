//! ISD-AS numbers and host addresses.
