//! Routing policies as text, in the form that the reference prints.

use std::fmt;

use super::{Action, IsdAsMatcher, Networks, RoutingPolicy, Rule};

/// Spaces between two columns, at least.
const GAP: usize = 4;

impl fmt::Display for RoutingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 5]> = self.rules.iter().map(columns).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        for (rule, row) in self.rules.iter().zip(&rows) {
            let mut line = String::new();
            for (text, width) in row.iter().zip(widths) {
                line.push_str(&format!("{text:<0$}", width + GAP));
            }
            if !rule.comment.is_empty() {
                line.push_str(&format!("# {}", rule.comment));
            }
            writeln!(f, "{}", line.trim_end_matches(' '))?;
        }
        Ok(())
    }
}

fn columns(rule: &Rule) -> [String; 5] {
    [
        rule.action.to_string(),
        rule.from.to_string(),
        rule.to.to_string(),
        rule.networks.to_string(),
        rule.next_hop.map_or(String::new(), |hop| hop.to_string()),
    ]
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Advertise => "advertise",
            Self::RedistributeBgp => "redistribute-bgp",
        })
    }
}

impl fmt::Display for IsdAsMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.negated { "!" } else { "" }, self.isd_as)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.negated { "!" } else { "" })?;
        for (i, prefix) in self.prefixes.iter().enumerate() {
            write!(f, "{}{prefix}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
