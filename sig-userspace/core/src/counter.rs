//! Counters, readable by anybody at any time, and tables of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread advances and any thread reads.
///
/// Advancing is a plain load, add and store: no other thread writes it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread calls it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Replaces the value. Only the owning thread calls it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that several threads advance.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a counter is shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the metric.
    pub metric: &'static str,
    /// Labels of the metric beside `isd_as`. What has no value here gets it where the counter is: the number of the worker,
    /// say.
    pub labels: &'static [(&'static str, &'static str)],
    /// One sentence about the metric.
    pub help: &'static str,
}

/// Declares counters, one row each: field, metric, labels, help. Makes
///
/// - a struct of them, of which each place that counts advances a field;
/// - a struct of their values with the same fields, for the status document;
/// - the [`Row`]s of these, for the metrics.
macro_rules! counters {
    (
        $(#[$attribute:meta])*
        pub struct $counters:ident: $cell:ty {
            $($(#[$more_attribute:meta])* $more:ident: $type:ty,)*
        }
        $(#[$values_attribute:meta])*
        pub struct $values:ident;
        $($field:ident $metric:literal [$($label:ident $(= $value:literal)?),*] $help:literal;)+
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Default)]
        pub struct $counters {
            $($(#[$more_attribute])* pub $more: $type,)*
            $(#[doc = $help] pub $field: $cell,)+
        }

        impl $counters {
            /// Reads all counters of the table.
            pub fn read(&self) -> $values {
                $values { $($field: self.$field.get(),)+ }
            }
        }

        $(#[$values_attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $values {
            $(#[doc = $help] pub $field: u64,)+
        }

        impl $values {
            /// How they are shown, in the order of [`Self::iter`].
            pub const ROWS: &[$crate::counter::Row] = &[$($crate::counter::Row {
                metric: $metric,
                labels: &[$((stringify!($label), concat!("" $(, $value)?))),*],
                help: $help,
            },)+];

            /// Returns each value and how it is shown.
            pub fn iter(&self) -> impl Iterator<Item = (&'static $crate::counter::Row, u64)> {
                Self::ROWS.iter().zip([$(self.$field),+])
            }
        }

        impl std::iter::Sum for $values {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| $values {
                    $($field: sum.$field.saturating_add(one.$field),)+
                })
            }
        }
    };
}

pub(crate) use counters;
