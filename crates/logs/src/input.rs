//! Logs as they lie about: plain, gzipped, or compressed by zstd.

use std::io::{BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use rejoin_trace::{Zstd, begins_zstd};

use crate::error::Error;

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Compressions that are not read: the first bytes, the name, and the program that prints the content.
const OTHERS: [(&[u8], &str, &str); 3] = [
    (b"BZh", "bzip2", "bzcat"),
    (b"\xfd7zXZ", "xz", "xzcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
];
/// The bytes by which compressions are recognised.
const FIRST_BYTES: u64 = 5;
/// The bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Recognises the compression by the first bytes, and returns what is inside. Several compressed logs may follow each
/// other in one input.
pub(crate) fn opened<'a>(mut input: impl Read + 'a) -> Result<Box<dyn BufRead + 'a>, Error> {
    let mut first = Vec::new();
    let read = input.by_ref().take(FIRST_BYTES).read_to_end(&mut first);
    read.map_err(|cause| Error::Read { line: 0, cause })?;
    if let Some((_, by, program)) = OTHERS.iter().find(|(begins, ..)| first.starts_with(begins)) {
        return Err(Error::Compressed { by, program });
    }
    let (gzip, zstd) = (first.starts_with(&GZIP), begins_zstd(&first));
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(first).chain(input));
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))),
        (_, true) => Box::new(BufReader::with_capacity(BUFFER_BYTES, Zstd::new(whole))),
        _ => Box::new(whole),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        opened(bytes).expect("a known compression").read_to_end(&mut text)?;
        Ok(text)
    }

    fn gzipped(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn a_compression_that_is_not_read_is_named() {
        for (begins, expected, _) in OTHERS {
            let opened = opened(&[begins, b"anything"].concat()[..]).map(|_| ());
            let Err(Error::Compressed { by, .. }) = opened else { panic!("{opened:?}") };
            assert_eq!(by, expected);
        }
    }

    #[test]
    fn the_first_bytes_tell_the_compression() {
        let zstd = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        for text in ["", "a", "a line\n", &"many lines\n".repeat(40_000)] {
            let text = text.as_bytes();
            assert_eq!(read(text).expect("plain"), text);
            for compressed in [gzipped(text), zstd(text)] {
                assert_eq!(read(&compressed).expect("whole"), text);
                let twice = [&compressed[..], &compressed].concat();
                assert_eq!(read(&twice).expect("two"), [text, text].concat());
                if text.len() > 1 {
                    let cut = read(&compressed[..compressed.len() - 1]).map_err(|cut| cut.kind());
                    assert_eq!(cut, Err(io::ErrorKind::UnexpectedEof));
                }
            }
        }
    }
}
