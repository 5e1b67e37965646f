//! The part of libfabric's C interface that this crate uses, declared by hand (`rdma/fabric.h` and
//! its siblings, version 1.17).
//!
//! Structures that the library allocates end here after the last used field, because later versions
//! only append fields. Structures that the library fills and we allocate are complete, with spare
//! room. A test below compares the offsets with those of a C compiler.

use std::ffi::{c_char, c_int, c_void};

/// An unused function; reserves its place in a table.
pub(crate) type Unused = *const c_void;

/// `FI_VERSION(1, 17)`: the interface that this file describes.
pub(crate) const API_VERSION: u32 = 1 << 16 | 17;

// Capabilities, operation flags and modes.
pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_TRANSMIT: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
/// For `fi_getinfo`: the address belongs to this machine.
pub(crate) const FI_SOURCE: u64 = 1 << 57;
/// Mode: writes with data need a posted receive at the other end. We never send such data.
pub(crate) const FI_RX_CQ_DATA: u64 = 1 << 56;
/// Ordering: a read is executed after earlier writes.
pub(crate) const FI_ORDER_RAW: u64 = 1 << 1;

// Requirements of a provider for the registration of memory.
pub(crate) const FI_MR_LOCAL: c_int = 1 << 2;
pub(crate) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: c_int = 1 << 6;

pub(crate) const FI_EP_MSG: c_int = 1;
pub(crate) const FI_THREAD_SAFE: c_int = 1;
pub(crate) const FI_PROGRESS_AUTO: c_int = 1;
pub(crate) const FI_WAIT_FD: c_int = 3;
pub(crate) const FI_CQ_FORMAT_CONTEXT: c_int = 1;
/// Commands of `fi_control`.
pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;

// Events.
pub(crate) const FI_CONNREQ: u32 = 1;
pub(crate) const FI_CONNECTED: u32 = 2;
pub(crate) const FI_SHUTDOWN: u32 = 3;

/// An error is at the head of a queue. The other checked errors are the system's.
pub(crate) const FI_EAVAIL: isize = 259;

#[repr(C)]
pub(crate) struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
}

#[repr(C)]
pub(crate) struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
}

#[repr(C)]
pub(crate) struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
}

#[repr(C)]
pub(crate) struct DomainAttr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
}

#[repr(C)]
pub(crate) struct FabricAttr {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
}

#[repr(C)]
pub(crate) struct InfoRaw {
    pub next: *mut InfoRaw,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
}

/// The head of every object of the library. Function tables live as long as their object;
/// references to them are taken through a borrow of the object and used at once.
#[repr(C)]
pub(crate) struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: &'static FidOps,
}

#[repr(C)]
pub(crate) struct FidOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct FabricFid {
    pub fid: Fid,
    pub ops: &'static FabricOps,
}

#[repr(C)]
pub(crate) struct FabricOps {
    pub size: usize,
    pub domain: unsafe extern "C" fn(
        *mut FabricFid,
        *mut InfoRaw,
        *mut *mut DomainFid,
        *mut c_void,
    ) -> c_int,
    pub passive_ep:
        unsafe extern "C" fn(*mut FabricFid, *mut InfoRaw, *mut *mut PepFid, *mut c_void) -> c_int,
    pub eq_open:
        unsafe extern "C" fn(*mut FabricFid, *mut EqAttr, *mut *mut EqFid, *mut c_void) -> c_int,
    pub wait_open: Unused,
    pub trywait: unsafe extern "C" fn(*mut FabricFid, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub(crate) struct EqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct EqFid {
    pub fid: Fid,
    pub ops: &'static EqOps,
}

#[repr(C)]
pub(crate) struct EqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut EqFid, *mut u32, *mut c_void, usize, u64) -> isize,
    pub readerr: unsafe extern "C" fn(*mut EqFid, *mut EqErrEntry, u64) -> isize,
    pub write: Unused,
    pub sread: unsafe extern "C" fn(*mut EqFid, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
}

/// `fi_eq_cm_entry`, with room for the data that a peer sent with its request.
#[repr(C)]
pub(crate) struct EqCmEntry {
    pub fid: *mut Fid,
    pub info: *mut InfoRaw,
    pub data: [u8; CM_DATA_ROOM],
}

/// Room for the data of a connection request. Providers deliver it complete or padded, and none has
/// more than 256 bytes.
pub(crate) const CM_DATA_ROOM: usize = 512;

#[repr(C)]
pub(crate) struct EqErrEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Room for fields of later versions.
    pub spare: [u64; 8],
}

#[repr(C)]
pub(crate) struct DomainFid {
    pub fid: Fid,
    pub ops: &'static DomainOps,
    pub mr: &'static MrOps,
}

#[repr(C)]
pub(crate) struct DomainOps {
    pub size: usize,
    pub av_open: Unused,
    pub cq_open:
        unsafe extern "C" fn(*mut DomainFid, *mut CqAttr, *mut *mut CqFid, *mut c_void) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut DomainFid, *mut InfoRaw, *mut *mut EpFid, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct MrOps {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut MrFid,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub(crate) struct MrFid {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub(crate) struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct CqFid {
    pub fid: Fid,
    pub ops: &'static CqOps,
}

#[repr(C)]
pub(crate) struct CqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut CqFid, *mut c_void, usize) -> isize,
    pub readfrom: Unused,
    pub readerr: unsafe extern "C" fn(*mut CqFid, *mut CqErrEntry, u64) -> isize,
}

#[repr(C)]
pub(crate) struct CqErrEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Room for fields of later versions.
    pub spare: [u64; 8],
}

#[repr(C)]
pub(crate) struct PepFid {
    pub fid: Fid,
    pub ops: Unused,
    pub cm: &'static CmOps,
}

#[repr(C)]
pub(crate) struct EpFid {
    pub fid: Fid,
    pub ops: Unused,
    pub cm: &'static CmOps,
    pub msg: Unused,
    /// `None` if a provider has no one-sided operations; the selected providers have them.
    pub rma: Option<&'static RmaOps>,
}

#[repr(C)]
pub(crate) struct CmOps {
    pub size: usize,
    pub setname: Unused,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub getpeer: Unused,
    pub connect: unsafe extern "C" fn(*mut EpFid, *const c_void, *const c_void, usize) -> c_int,
    pub listen: unsafe extern "C" fn(*mut PepFid) -> c_int,
    pub accept: unsafe extern "C" fn(*mut EpFid, *const c_void, usize) -> c_int,
    pub reject: unsafe extern "C" fn(*mut PepFid, *mut Fid, *const c_void, usize) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut EpFid, u64) -> c_int,
}

/// `fi_read`; `fi_write` differs only in `const`.
pub(crate) type Rma = unsafe extern "C" fn(
    *mut EpFid,
    *mut c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;

#[repr(C)]
pub(crate) struct RmaOps {
    pub size: usize,
    pub read: Rma,
    pub readv: Unused,
    pub readmsg: Unused,
    pub write: Rma,
}

pub(crate) type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const InfoRaw,
    *mut *mut InfoRaw,
) -> c_int;
pub(crate) type FreeInfo = unsafe extern "C" fn(*mut InfoRaw);
pub(crate) type DupInfo = unsafe extern "C" fn(*const InfoRaw) -> *mut InfoRaw;
pub(crate) type OpenFabric =
    unsafe extern "C" fn(*mut FabricAttr, *mut *mut FabricFid, *mut c_void) -> c_int;
pub(crate) type StrError = unsafe extern "C" fn(c_int) -> *const c_char;
pub(crate) type Version = unsafe extern "C" fn() -> u32;

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// The right-hand sides were printed by a C program with `offsetof` (libfabric 1.17, x86-64
    /// Linux).
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn fields_lie_where_the_c_headers_have_them() {
        let offsets = [
            (offset_of!(TxAttr, size), 48),
            (offset_of!(TxAttr, msg_order), 24),
            (offset_of!(RxAttr, msg_order), 24),
            (offset_of!(EpAttr, max_msg_size), 16),
            (offset_of!(DomainAttr, threading), 16),
            (offset_of!(DomainAttr, data_progress), 24),
            (offset_of!(DomainAttr, mr_mode), 36),
            (offset_of!(DomainAttr, mr_key_size), 40),
            (offset_of!(FabricAttr, prov_name), 16),
            (offset_of!(InfoRaw, mode), 16),
            (offset_of!(InfoRaw, dest_addr), 56),
            (offset_of!(InfoRaw, handle), 64),
            (offset_of!(InfoRaw, fabric_attr), 104),
            (offset_of!(Fid, ops), 16),
            (offset_of!(FidOps, close), 8),
            (offset_of!(FidOps, bind), 16),
            (offset_of!(FidOps, control), 24),
            (offset_of!(FabricFid, ops), 24),
            (offset_of!(FabricOps, domain), 8),
            (offset_of!(FabricOps, passive_ep), 16),
            (offset_of!(FabricOps, eq_open), 24),
            (offset_of!(FabricOps, trywait), 40),
            (offset_of!(EqAttr, wait_obj), 16),
            (offset_of!(EqFid, ops), 24),
            (offset_of!(EqOps, read), 8),
            (offset_of!(EqOps, readerr), 16),
            (offset_of!(EqOps, sread), 32),
            (offset_of!(EqCmEntry, data), 16),
            (offset_of!(EqErrEntry, err), 24),
            (offset_of!(EqErrEntry, err_data_size), 40),
            (offset_of!(DomainFid, ops), 24),
            (offset_of!(DomainFid, mr), 32),
            (offset_of!(DomainOps, cq_open), 16),
            (offset_of!(DomainOps, endpoint), 24),
            (offset_of!(MrOps, reg), 8),
            (offset_of!(MrFid, mem_desc), 24),
            (offset_of!(MrFid, key), 32),
            (offset_of!(CqAttr, format), 16),
            (offset_of!(CqAttr, wait_obj), 20),
            (offset_of!(CqAttr, wait_set), 32),
            (offset_of!(CqFid, ops), 24),
            (offset_of!(CqOps, read), 8),
            (offset_of!(CqOps, readerr), 24),
            (offset_of!(CqErrEntry, err), 56),
            (offset_of!(CqErrEntry, err_data_size), 72),
            (offset_of!(PepFid, cm), 32),
            (offset_of!(EpFid, cm), 32),
            (offset_of!(EpFid, rma), 48),
            (offset_of!(CmOps, getname), 16),
            (offset_of!(CmOps, connect), 32),
            (offset_of!(CmOps, listen), 40),
            (offset_of!(CmOps, accept), 48),
            (offset_of!(CmOps, reject), 56),
            (offset_of!(CmOps, shutdown), 64),
            (offset_of!(RmaOps, read), 8),
            (offset_of!(RmaOps, write), 32),
        ];
        for (place, (ours, theirs)) in offsets.into_iter().enumerate() {
            assert_eq!(ours, theirs, "line {place}");
        }
        assert_eq!((size_of::<EqAttr>(), size_of::<CqAttr>()), (32, 40));
        assert!(size_of::<EqErrEntry>() >= 48 && size_of::<CqErrEntry>() >= 80);
    }
}
