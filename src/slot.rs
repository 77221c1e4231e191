//! Which slot of a cluster a key is in, as Redis Cluster computes it.

/// The number of slots that a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn of(key: impl AsRef<[u8]>) -> u16 {
    crc16(tag_of(key.as_ref())) % SLOTS
}

/// The part of a key that decides about its slot: what is between its first `{` and the next `}`,
/// if there is something, or else the whole key.
pub(crate) fn tag(key: &str) -> &str {
    str::from_utf8(tag_of(key.as_bytes())).unwrap_or(key)
}

fn tag_of(key: &[u8]) -> &[u8] {
    let position_of = |bytes: &[u8], brace| bytes.iter().position(|byte| *byte == brace);
    let Some(open) = position_of(key, b'{') else { return key };
    let rest = &key[open + 1..];
    position_of(rest, b'}').filter(|close| *close > 0).map_or(key, |close| &rest[..close])
}

const fn table() -> [u16; 256] {
    const POLYNOMIAL: u16 = 0x1021;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    bytes.iter().fold(0, |crc, byte| {
        let high = (crc >> 8) as u8;
        (crc << 8) ^ TABLE[usize::from(high ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As `CLUSTER KEYSLOT` answers.
        for (key, slot) in [("foo", 12_182), ("bar", 5_061), ("", 0), ("somekey", 11_058)] {
            assert_eq!(of(key), slot, "{key}");
        }
        for (key, tag_of_it) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("a{b", "a{b"),
            ("a}b", "a}b"),
            ("}{", "}{"),
        ] {
            assert_eq!(tag(key), tag_of_it, "{key}");
        }
    }
}
