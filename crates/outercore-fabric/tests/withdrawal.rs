//! A region whose memory the system does not release.

mod common;

use common::{Bench, Server, client, pattern, plane};
use outercore_core::{ErrorKind, Result};
use outercore_far::Access;

/// From now on, the system refuses to replace a mapping, only in this thread.
fn refuse_to_replace_mappings() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |test: u32, k: u32, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | test | libc::BPF_K) as u16,
        jt: 0,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    // Offsets in `seccomp_data`: the number of the call, and the lower half of its fourth argument.
    let (number, flags) = (0, 16 + 3 * 8);
    let mut filter = [
        statement(load, number),
        jump(libc::BPF_JEQ, libc::SYS_mmap as u32, 3),
        statement(load, flags),
        jump(libc::BPF_JSET, libc::MAP_FIXED as u32, 1),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its statements live until the call returns, which copies them.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_region_that_cannot_be_given_back_closes_the_queues_of_its_session() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let region = server.put(1, &pattern(1 << 20, 1), Access::ReadWrite);
    let elsewhere = server.put(2, &pattern(9, 2), Access::Read);
    let (stuck, other) = (client(&plane, &server, 1), client(&plane, &server, 2));
    let mut reading = Bench::open(&*stuck, 1, 4096);
    let mut reading_elsewhere = Bench::open(&*other, 1, 4096);
    assert_eq!(reading.read(region, 0, 9).unwrap(), pattern(9, 1));
    reading_elsewhere.read(elsewhere, 0, 9).unwrap();

    let withdraw = || -> Result<()> {
        refuse_to_replace_mappings();
        server.listener.withdraw(region.key)
    };
    let withdrawn = std::thread::scope(|scope| scope.spawn(withdraw).join().unwrap());

    let error = withdrawn.unwrap_err();
    assert!(error.to_string().contains("giving a region back"), "{error}");
    // That queue cannot even read an existing region.
    assert_eq!(reading.read(elsewhere, 0, 9).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(reading_elsewhere.read(elsewhere, 0, 9).unwrap(), pattern(9, 2));
    // Withdrawn once, the region is not tried again.
    server.listener.withdraw(region.key).unwrap();
}
