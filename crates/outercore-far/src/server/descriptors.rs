//! File descriptors: each region takes one, but connections must still get theirs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ServerConfig;
use super::strangers::MOST_STRANGERS;

/// Other open files of the process: streams, listeners, a data plane.
const OTHERS: u64 = 64;

/// Raises the limit of open files as far as possible; returns the largest number of regions.
pub(super) fn most_regions(config: &ServerConfig) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, the old limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    limit - reserve(config, limit)
}

/// Descriptors that regions may not take: enough for all allowed connections, or half of a lower
/// limit.
fn reserve(config: &ServerConfig, limit: u64) -> u64 {
    let clients = config.sessions as u64 * (1 + config.queues_per_session as u64);
    let strangers = config.listen.len() as u64 * MOST_STRANGERS as u64;
    (clients + strangers + OTHERS).min(limit.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use outercore_core::Bytes;

    use super::*;
    use crate::auth::Token;

    fn config() -> ServerConfig {
        let token = Token::new(&[b'x'; 16]).unwrap();
        ServerConfig::new("127.0.0.1:0".parse().unwrap(), Bytes::mib(1), token)
    }

    #[test]
    fn connections_have_descriptors_that_no_region_takes() {
        let config = ServerConfig { sessions: 2, queues_per_session: 3, ..config() };
        let wanted = 8 + MOST_STRANGERS as u64 + OTHERS;
        assert_eq!(reserve(&config, 1 << 20), wanted);
        assert_eq!(reserve(&config, 11), 6);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let most = most_regions(&config());
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!(most < limit.current.unwrap_or(u64::MAX));
    }
}
