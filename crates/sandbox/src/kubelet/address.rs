//! Allocates pod addresses: the lowest free address of the node's pod CIDR.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::wire::Key;

/// The allocated addresses of every node.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    taken: BTreeMap<String, BTreeSet<u32>>,
    of: BTreeMap<Key, (String, u32)>,
}

impl Addresses {
    /// Allocates an address from the pod CIDR of the node. Returns none if the CIDR is malformed or exhausted.
    pub(super) fn assign(&mut self, pod: &Key, node: &str, range: &str) -> Option<Ipv4Addr> {
        let (base, bits) = range.split_once('/')?;
        let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
        let size = 1u32.checked_shl(32u32.checked_sub(bits.parse().ok()?)?)?;
        if let Some((held, offset)) = self.of.get(pod) {
            if held == node {
                return Some(Ipv4Addr::from(base + offset));
            }
            self.release(pod);
        }
        let taken = self.taken.entry(node.to_owned()).or_default();
        // The first two addresses belong to the network and the node, the last one is the broadcast address.
        let mut free = 2;
        for offset in taken.iter() {
            if *offset > free {
                break;
            }
            free = offset + 1;
        }
        if free + 1 >= size {
            return None;
        }
        taken.insert(free);
        self.of.insert(pod.clone(), (node.to_owned(), free));
        Some(Ipv4Addr::from(base + free))
    }

    /// Marks an address as used by a pod that already has it.
    pub(super) fn reserve(&mut self, pod: &Key, node: &str, range: &str, address: &str) {
        let Some((base, _)) = range.split_once('/') else { return };
        let (Ok(base), Ok(address)) = (base.parse::<Ipv4Addr>(), address.parse::<Ipv4Addr>()) else { return };
        if let Some(offset) = u32::from(address).checked_sub(u32::from(base)) {
            self.taken.entry(node.to_owned()).or_default().insert(offset);
            self.of.insert(pod.clone(), (node.to_owned(), offset));
        }
    }

    pub(super) fn release(&mut self, pod: &Key) {
        if let Some((node, offset)) = self.of.remove(pod)
            && let Some(taken) = self.taken.get_mut(&node)
        {
            taken.remove(&offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_the_lowest_free_address_until_the_cidr_is_exhausted() {
        let mut addresses = Addresses::default();
        let mut assign =
            |name: &str| addresses.assign(&Key::new("d", name), "n", "10.0.0.0/29").map(|a| a.to_string());
        assert_eq!(assign("a").as_deref(), Some("10.0.0.2"));
        assert_eq!(assign("b").as_deref(), Some("10.0.0.3"));
        assert_eq!(assign("a").as_deref(), Some("10.0.0.2"));
        for name in ["c", "d", "e"] {
            assert!(assign(name).is_some());
        }
        assert_eq!(assign("f"), None);
        addresses.release(&Key::new("d", "b"));
        assert_eq!(
            addresses.assign(&Key::new("d", "f"), "n", "10.0.0.0/29").unwrap().to_string(),
            "10.0.0.3"
        );
    }
}
