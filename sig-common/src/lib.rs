#![no_std]
#![doc = "Wire formats and BPF map layouts shared by the XDP programs and the engine."]
