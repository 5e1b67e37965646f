//! `.npy` headers: round trips and hostile bytes.

use outercore_format::{DType, NpyHeader};
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_encoded_parses_back(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        shape in proptest::collection::vec(0u64..1000, 0..5),
    ) {
        let bytes = NpyHeader::encode(dtype, &shape);
        prop_assert_eq!(bytes.len(), 4096);
        prop_assert_eq!(bytes.last(), Some(&b'\n'));
        let header = NpyHeader::parse(&bytes).unwrap();
        prop_assert_eq!(header.dtype, dtype.stored());
        prop_assert_eq!(header.data_len(), shape.iter().product::<u64>() * dtype.size() as u64);
        prop_assert_eq!(header.shape, shape);
        prop_assert_eq!(header.data_offset, 4096);
    }

    #[test]
    fn any_bytes_are_a_header_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = NpyHeader::parse(&bytes);
        let mut with_magic = b"\x93NUMPY\x01\x00".to_vec();
        with_magic.extend_from_slice(&bytes);
        let _ = NpyHeader::parse(&with_magic);
    }

    #[test]
    fn any_text_in_a_header_is_a_header_or_an_error(
        text in "[{}()':,<>a-z0-9 \\\\\"\n]{0,120}", damage in 0usize..80, byte in any::<u8>(),
    ) {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        let _ = NpyHeader::parse(&bytes);
        let mut bytes = NpyHeader::encode(DType::F32, &[12, 34]);
        bytes[damage] = byte;
        if let Ok(header) = NpyHeader::parse(&bytes) {
            prop_assert!(header.data_offset <= bytes.len() as u64);
        }
    }
}

#[test]
fn the_header_of_the_largest_shape_fits() {
    // 32 dimensions of extent one, and the longest single extent.
    for shape in [vec![1; 32], vec![u64::from(u32::MAX) << 20]] {
        let header = NpyHeader::parse(&NpyHeader::encode(DType::U8, &shape)).unwrap();
        assert_eq!(header.shape, shape);
    }
}
