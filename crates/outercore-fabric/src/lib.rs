//! Data transfers of far memory over libfabric: one-sided reads and writes, by RDMA if a network
//! card supports it (Fargraph+ 6.1).
//!
//! The memory server's control connection stays on TCP. Each data queue is a separate connected
//! endpoint (`FI_EP_MSG`). A region is registered when a session first uses it; from then on
//! `fi_read` and `fi_write` move its bytes without the server's program. The server uses a separate
//! domain for each session, and registers sealed regions for reading only. So the key of one client
//! gives no access to a region that was granted to another. Waiting uses file descriptors; no
//! thread spins.
//!
//! The library is loaded at run time (`libfabric.so.1`, 1.17 or later) and never linked. Without it
//! everything else works, and `fabric://` addresses are refused with the packages to install.
//!
//! # Tested, and not tested
//! The tests run over libfabric's `tcp` provider (1.17, Linux x86-64) within one machine:
//! transfers, refusals, and a server that ends, is killed or hangs.
//!
//! **Not tested: any RDMA hardware** (the `verbs` provider, InfiniBand, RoCE, iWARP). Requirements
//! of such providers beyond `tcp` are implemented but have not run on a device. These are memory
//! registered at both ends (`FI_MR_LOCAL`; done for every provider, so the code runs in the tests),
//! keys and addresses chosen by the provider (`FI_MR_PROV_KEY`, `FI_MR_VIRT_ADDR`), pinning limits
//! (`ulimit -l`), and devices with several ports. EFA has no connected endpoints, so it cannot be
//! used. Versions other than 1.17 are untested; only the first fields are read of structures that
//! grew since. The tests also pass over the `net` provider of 1.17, which keeps one core busy.
//! `sockets` is known to hang after a region was withdrawn during transfers.
//!
//! To test a device: `OUTERCORE_TEST_FABRIC="verbs 10.0.0.1" cargo test -p outercore-fabric`, with
//! the address of its interface.
//!
//! Data and tickets are not encrypted: use a fabric only on a network where every machine is
//! trusted.
//!
//! Layer 3, at the level of the store. A foreign library requires `unsafe`: `ffi` declares it,
//! `library` and `objects` wrap it. `server`, `near` and `queue` guarantee the validity of memory
//! that a network card reads and writes, `mapping` creates it, and `signals` preserves our signal
//! handlers.

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
