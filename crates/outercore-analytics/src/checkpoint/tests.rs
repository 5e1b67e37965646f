use outercore_io::{FaultDisk, FaultKind, FaultPlan, RealDisk};
use serde_json::json;

use super::*;

#[test]
fn a_full_disk_ends_the_checkpoints_and_leaves_the_last_whole_one() {
    let mut left = Vec::new();
    for at in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let plan = FaultPlan { at, kind: FaultKind::NoSpace };
        let disk = Arc::new(FaultDisk::new(directory.path(), plan));
        let place = directory.path().join("state");
        let opened = Checkpoints::open(disk, &place, json!({}), Duration::ZERO, false);
        let Ok(mut checkpoints) = opened else { continue };
        for byte in [1, 2] {
            checkpoints.write(json!(byte), &mut |into| into(&[byte; 9])).unwrap();
        }
        let written = checkpoints.written();
        if written == 2 {
            assert!(checkpoints.is_due());
            break;
        }
        assert!(!checkpoints.is_due(), "{at}");
        drop(checkpoints);
        // The record may be complete even if the error came after it.
        let again = Checkpoints::open(Arc::new(RealDisk), &place, json!({}), Duration::ZERO, true);
        match again {
            Ok(mut found) => left.push(found.resume().unwrap().1.as_u64().unwrap()),
            Err(error) => {
                assert_eq!((error.kind(), written), (ErrorKind::NotFound, 0), "{at}");
                left.push(0);
            }
        }
    }
    for expected in [0, 1] {
        assert!(left.contains(&expected), "{left:?}");
    }
}

#[test]
fn a_checkpoint_fits_another_max_iterations() {
    let told = |described: Value| json!({ "algorithm": described, "graph": "a" });
    let with = |fingerprint| Record {
        generation: 0,
        fingerprint,
        at: Value::Null,
        bytes: 0,
        checksum: String::new(),
    };
    let now = told(json!({ "algorithm": "pagerank", "damping": 0.85 }));
    let earlier = told(json!({ "algorithm": "pagerank", "damping": 0.85, "max_iterations": 0 }));
    let other = told(json!({ "algorithm": "pagerank", "damping": 0.9, "max_iterations": 0 }));
    for (found, expected) in [(&now, &now), (&earlier, &now), (&now, &earlier)] {
        with(found.clone()).check(expected).unwrap();
    }
    for (found, expected) in [(&other, &now), (&now, &other)] {
        let error = with(found.clone()).check(expected).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("0.85") && text.contains("0.9"), "{text}");
        assert!(!text.contains("max_iterations"), "{text}");
    }
}
