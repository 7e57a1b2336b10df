//! Buckets of a histogram that is cheap to fill: 32 in every power of two, so that a bucket is at most
//! 1/32 of its values wide.

/// Bits of a value, below the leading one, that choose a bucket.
const BITS: u32 = 5;
/// Values have at most this many bits: 18 minutes of nanoseconds. Longer ones count as the longest.
const MAX_BITS: u32 = 40;
/// Number of buckets.
pub const BUCKETS: u32 = (MAX_BITS - BITS + 1) << BITS;

/// The bucket of a value.
#[inline(always)]
#[must_use]
pub const fn bucket(value: u64) -> u32 {
    let value = if value >> MAX_BITS == 0 {
        value
    } else {
        (1 << MAX_BITS) - 1
    };
    if value < 1 << BITS {
        return value as u32;
    }
    let shift = bits(value) - 1 - BITS;
    (shift << BITS) + (value >> shift) as u32
}

/// The least value of a bucket and how many values it takes.
#[must_use]
pub const fn range(bucket: u32) -> (u64, u64) {
    if bucket < 1 << BITS {
        return (bucket as u64, 1);
    }
    let shift = (bucket >> BITS) - 1;
    (((bucket - (shift << BITS)) as u64) << shift, 1 << shift)
}

/// Bits of a value without leading zeros, below [`MAX_BITS`]. BPF has no instruction for it.
#[inline(always)]
const fn bits(value: u64) -> u32 {
    let mut rest = value;
    let mut bits = 0;
    let mut step = 32;
    while step > 0 {
        if rest >> step != 0 {
            rest >>= step;
            bits += step;
        }
        step /= 2;
    }
    bits + rest as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_without_gaps_and_narrow() {
        let mut end = 0;
        for number in 0..BUCKETS {
            let (first, width) = range(number);
            assert_eq!(first, end, "bucket {number}");
            assert!(width == 1 || width * 32 <= first, "bucket {number}");
            assert_eq!(bucket(first), number);
            assert_eq!(bucket(first + width - 1), number);
            end = first + width;
        }
        assert_eq!(end, 1 << MAX_BITS);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
