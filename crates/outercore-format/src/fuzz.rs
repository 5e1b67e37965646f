//! Bodies of fuzz targets. Each accepts any bytes and panics if a property does not hold.

use outercore_core::{Error, ErrorKind};

use crate::log::{self, FRAME_HEADER, Frame, FrameHead, Record, SEGMENT_HEADER, Segment};
use crate::{DType, Manifest, NpyHeader, Update};

const SEGMENT: Segment = Segment { id: [7; 16], first: 1 };

/// A manifest that parses is valid, and stays the same after writing and parsing it again.
pub fn manifest(bytes: &[u8]) {
    let manifest = match Manifest::from_json(bytes) {
        Ok(manifest) => manifest,
        Err(error) => return told(&error),
    };
    manifest.validate().expect("what parses is valid");
    let again = Manifest::from_json(manifest.to_file().as_bytes()).expect("what was written");
    assert_eq!(again, manifest);
    match manifest.schema() {
        Ok(schema) => {
            assert!(schema.num_nodes() <= u64::MAX / 2 && schema.num_columns() < u64::MAX)
        }
        Err(error) => told(&error),
    }
    for entry in manifest.arrays.values() {
        // These must not overflow, because every reader computes them.
        assert!(entry.file_len() >= entry.data_offset);
        assert_eq!(entry.data_len(), entry.rows() * entry.row_bytes());
    }
}

/// A header that parses describes no more bytes than a file can hold, and stays the same after
/// writing and parsing it again.
pub fn npy_header(bytes: &[u8]) {
    if let Err(error) = NpyHeader::length(bytes) {
        told(&error);
    }
    let header = match NpyHeader::parse(bytes) {
        Ok(header) => header,
        Err(error) => return told(&error),
    };
    assert!(header.data_offset as usize <= bytes.len());
    assert!(i64::try_from(header.data_len() + header.data_offset).is_ok());
    let written = NpyHeader::encode(header.dtype, &header.shape);
    let again = NpyHeader::parse(&written).expect("what was written");
    assert_eq!((again.dtype, again.shape), (header.dtype, header.shape));
    assert_ne!(header.dtype, DType::BF16, "NumPy has no such type");
}

/// Updates that decode stay the same after writing and reading them again.
pub fn updates(bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let update = match Update::decode(&mut rest) {
            Ok(update) => update,
            Err(error) => return told(&error),
        };
        let mut written = Vec::new();
        update.encode(&mut written).expect("what decodes can be written");
        let again = Update::decode(&mut &written[..]).expect("what was written");
        assert_eq!(again, update);
    }
}

/// Tests frames of a log with the bytes as they are, and with the bytes as the body of a frame with
/// the right checksum. The log must accept such a body only if it consists of updates. After a
/// change of one byte, the frame must be torn.
pub fn log_frames(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<SEGMENT_HEADER>() {
        match Segment::decode(header) {
            Ok(segment) => assert_eq!(segment.encode(), *header),
            Err(error) => told(&error),
        }
    }
    match log::decode_frame(&SEGMENT, bytes) {
        Ok(Frame::Whole(record, len)) => {
            assert!(is_whole_in_pieces(bytes));
            same_when_written(&record, &bytes[..len]);
        }
        Ok(Frame::Torn) => assert!(!is_whole_in_pieces(bytes)),
        Err(error) => told(&error),
    }
    let Some((&count, body)) = bytes.split_first() else { return };
    let frame = log::sealed_frame(&SEGMENT, 3, u32::from(count), body);
    match log::decode_frame(&SEGMENT, &frame) {
        Ok(Frame::Whole(record, len)) => {
            assert_eq!((record.lsn, record.updates.len(), len), (3, count.into(), frame.len()));
            same_when_written(&record, &frame);
        }
        Ok(Frame::Torn) => panic!("a frame with the right checksum is whole"),
        Err(error) => told(&error),
    }
    for at in (0..frame.len()).step_by(frame.len().div_ceil(8)) {
        let mut damaged = frame.clone();
        damaged[at] ^= 1;
        let found = log::decode_frame(&SEGMENT, &damaged);
        assert!(matches!(found, Ok(Frame::Torn)), "byte {at}: {found:?}");
    }
    assert!(matches!(log::decode_frame(&SEGMENT, &frame[..frame.len() - 1]), Ok(Frame::Torn)));
}

/// Whether a frame is whole, for a reader that reads it piece by piece.
fn is_whole_in_pieces(bytes: &[u8]) -> bool {
    let Some(head) = FrameHead::decode(bytes) else { return false };
    let Some(frame) = bytes.get(FRAME_HEADER..head.frame_len() as usize) else { return false };
    let mut check = head.check(&SEGMENT);
    frame.chunks(7).for_each(|piece| check.update(piece));
    check.is_whole()
}

fn same_when_written(record: &Record, frame: &[u8]) {
    assert!(frame.len() >= FRAME_HEADER);
    let mut written = Vec::new();
    record.encode(&SEGMENT, &mut written).expect("what decodes can be written");
    let again = log::decode_frame(&SEGMENT, &written).expect("what was written");
    assert_eq!(again, Frame::Whole(record.clone(), written.len()));
}

/// Bytes from outside never cause an internal error, and the error always has a message.
fn told(error: &Error) {
    assert!(error.kind() != ErrorKind::Internal, "internal error: {error}");
    assert!(!error.message().trim().is_empty(), "an error without a message");
}
