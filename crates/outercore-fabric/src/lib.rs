//! Far memory's data over libfabric: one-sided reads and writes, by RDMA where there is such a
//! network card (Fargraph+ 6.1).
//!
//! The memory server's control connection stays TCP. Each data queue is a connected endpoint
//! (`FI_EP_MSG`) of its own; a region is registered when a session first uses it, and from then on
//! `fi_read` and `fi_write` move its bytes without the server's program. The server registers for
//! each session in a domain of its own, for reading alone once a region is sealed, so that no key
//! opens to one client what was granted to another. Waiting is done on file descriptors; nothing
//! spins.
//!
//! The library is found at run time (`libfabric.so.1`, 1.17 or later) and never linked: without it
//! everything else works, and `fabric://` is refused with what to install.
//!
//! # Tested, and not tested
//! The tests run over libfabric's `tcp` provider (1.17, Linux x86-64) within one machine: transfers,
//! refusals, a server that ends, is killed or stands still.
//!
//! **Not tested: any RDMA hardware** (the `verbs` provider, InfiniBand, RoCE, iWARP). What such a
//! provider asks for beyond `tcp` is there but has met no device: memory registered at both ends
//! (`FI_MR_LOCAL`; done for every provider, so the code runs in the tests), keys and addresses chosen
//! by the provider (`FI_MR_PROV_KEY`, `FI_MR_VIRT_ADDR`), pinning limits (`ulimit -l`), devices
//! behind several ports. EFA has no connected endpoints, so it cannot be used. Other versions than
//! 1.17 are untested; the structures that grew since are read by their first fields only. The tests
//! pass over the `net` provider of 1.17 too, which keeps a core busy by itself; `sockets` is known to
//! hang after a region was withdrawn amid transfers.
//!
//! To try a device: `OUTERCORE_TEST_FABRIC="verbs 10.0.0.1" cargo test -p outercore-fabric`, with the
//! address of its interface.
//!
//! Neither data nor tickets are encrypted: a fabric belongs on a network whose every machine is
//! trusted.
//!
//! Layer 3, beside the store. `unsafe` is what a foreign library takes: `ffi` declares it, `library`
//! and `objects` wrap it; `server`, `near` and `queue` answer for the memory that a network card
//! reads and writes, `mapping` makes it, `signals` keeps our handlers.

mod blob;
mod client;
mod ffi;
mod library;
mod mapping;
mod near;
mod objects;
mod plane;
mod queue;
mod server;
mod signals;
mod wake;

pub use plane::FabricPlane;
