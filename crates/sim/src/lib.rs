//! Simulates caches of TLS sessions over arrivals: policies, optimum, hit-rate curves.

#![forbid(unsafe_code)]

pub mod policy;
