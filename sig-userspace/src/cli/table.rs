//! Aligned columns for people.

use std::io::{self, Write};

/// A table with a header line; columns are two spaces apart.
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

struct Column {
    name: &'static str,
    right: bool,
}

impl Table {
    /// Column names; those that start with `>` are aligned to the right.
    pub(super) fn new(columns: &[&'static str]) -> Self {
        let column = |name: &&'static str| Column {
            name: name.trim_start_matches('>'),
            right: name.starts_with('>'),
        };
        Self {
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Appends a row, with one cell per column.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the table, every line indented by two spaces.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let header: Vec<String> = self.columns.iter().map(|c| c.name.to_owned()).collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let width = |i: usize| {
            lines()
                .map(|l| l.get(i).map_or(0, |c| c.chars().count()))
                .max()
        };
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| width(i).unwrap_or(0))
            .collect();
        for line in lines() {
            let mut text = String::new();
            for ((cell, column), width) in line.iter().zip(&self.columns).zip(&widths) {
                text += "  ";
                if column.right {
                    text += &format!("{cell:>width$}");
                } else {
                    text += &format!("{cell:<width$}");
                }
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", ">count", "note"]);
        table.row(["a".into(), "7".into(), "first".into()]);
        table.row(["longer".into(), "1234567".into(), String::new()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  name      count  note\n  a             7  first\n  longer  1234567\n"
        );
    }
}
