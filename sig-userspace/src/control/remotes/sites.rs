//! Which gateways lead to which prefixes.

use std::collections::BTreeMap;

use ipnet::IpNet;

/// Prefixes that the same gateways lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Places of the gateways, ascending: best first.
    pub(super) gateways: Vec<usize>,
    pub(super) prefixes: Vec<IpNet>,
}

/// Groups the prefixes of an AS: `common` ones are behind every gateway, `of_gateway` behind one each. As
/// in the reference, prefixes that the same set of gateways serves share their fate.
pub(super) fn group(common: &[IpNet], of_gateway: &[&[IpNet]]) -> Vec<Group> {
    let mut gateways: BTreeMap<IpNet, Vec<usize>> = BTreeMap::new();
    for (gateway, prefixes) in of_gateway.iter().enumerate() {
        for prefix in common.iter().chain(*prefixes) {
            let serving = gateways.entry(*prefix).or_default();
            if serving.last() != Some(&gateway) {
                serving.push(gateway);
            }
        }
    }
    let mut groups: BTreeMap<Vec<usize>, Vec<IpNet>> = BTreeMap::new();
    for (prefix, gateways) in gateways {
        groups.entry(gateways).or_default().push(prefix);
    }
    groups
        .into_iter()
        .map(|(gateways, prefixes)| Group { gateways, prefixes })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts
            .iter()
            .map(|text| text.parse().expect("a prefix"))
            .collect()
    }

    #[test]
    fn prefixes_with_the_same_gateways_are_one_group() {
        let (a, b) = (
            nets(&["10.1.0.0/24", "10.2.0.0/24"]),
            nets(&["10.2.0.0/24", "10.3.0.0/24"]),
        );
        let groups = group(&nets(&["10.9.0.0/24"]), &[&a, &b]);
        let found: Vec<_> = groups
            .iter()
            .map(|g| (g.gateways.as_slice(), g.prefixes.clone()))
            .collect();
        assert_eq!(
            found,
            [
                (&[0][..], nets(&["10.1.0.0/24"])),
                (&[0, 1][..], nets(&["10.2.0.0/24", "10.9.0.0/24"])),
                (&[1][..], nets(&["10.3.0.0/24"])),
            ]
        );
    }

    #[test]
    fn without_gateways_there_is_no_way_to_any_prefix() {
        assert_eq!(group(&nets(&["10.9.0.0/24"]), &[]), []);
    }
}
