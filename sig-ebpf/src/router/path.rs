//! May the packet go on, and by which interface? The procedure is that of the slow path; here is what it asks for.

use aya_ebpf::bindings::xdp_md;
use sig_common::{
    router::{
        maps::{Config, Interface},
        passage::Fields,
        procedure::{self, Exit, Router, Source},
    },
    wire::Load,
};

use super::{
    maps, parse, verify,
    work::{Outer, Stop, Work},
};

/// The packet at hand, and the maps.
pub struct Xdp<'a> {
    pub ctx: *mut xdp_md,
    pub outer: &'a Outer,
    pub config: &'a Config,
}

impl Source for Xdp<'_> {
    #[inline(always)]
    fn packet(&self) -> impl Load {
        parse::scion(self.ctx, self.outer)
    }
}

impl Router for Xdp<'_> {
    type Interface = &'static Interface;

    #[inline(always)]
    fn isd_as(&self) -> u64 {
        self.config.isd_as
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        self.outer.boot.wrapping_add(maps::clock())
    }

    #[inline(always)]
    fn sender(&self) -> u16 {
        maps::sibling(self.outer).unwrap_or(0)
    }

    #[inline(always)]
    fn interface(&self, number: u16) -> Option<&'static Interface> {
        maps::interface(number, self.outer.generation)
    }

    #[inline(always)]
    fn has_made(&self, fields: &Fields) -> bool {
        verify::has_made(fields, self.config)
    }
}

/// Checks a parsed packet and decides what is to be written to its path.
#[inline(always)]
pub fn process(
    ctx: *mut xdp_md,
    work: &mut Work,
    config: &Config,
) -> Result<Exit<&'static Interface>, Stop> {
    let xdp = Xdp {
        ctx,
        outer: &work.outer,
        config,
    };
    let exit = procedure::route(&xdp, &mut work.passage)?;
    if let Exit::Out(interface) = &exit {
        procedure::leave(&mut work.passage, interface);
    }
    work.traffic = procedure::traffic(&work.passage, &exit, config.isd_as);
    Ok(exit)
}
