//! What is free on one node, device by device, in exact numbers.

use std::collections::BTreeMap;

use model::{Amount, DeviceShare, PodSet, ResourceIx, ResourceVec};

/// Amounts by resource, exact.
pub(crate) type Ledger = BTreeMap<ResourceIx, i128>;

/// What is taken of a node, or given to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Take {
    pub(crate) amounts: Ledger,
    /// How many shares on the device of which number; none: on one that nobody knows.
    pub(crate) parts: Vec<(DeviceShare, Option<u32>, i128)>,
}

/// What a node has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// Amounts as if no device were shared.
    amounts: Ledger,
    /// Thousandths that are taken of each shared device, by its number.
    numbered: BTreeMap<(ResourceIx, u32), i128>,
    /// How many shares of a size are on devices that nobody knows.
    unknown: BTreeMap<(ResourceIx, u16), i128>,
}

impl Take {
    /// What `count` pods of a set take where `devices` says how many are on the device of which number; the others are on
    /// devices that nobody knows.
    pub(crate) fn of(pod_set: &PodSet, count: u32, devices: &[(u32, u32)]) -> Self {
        let amounts = product(&pod_set.request, count).collect();
        let mut parts = Vec::new();
        if let Some(share) = pod_set.share {
            let known: i128 = devices.iter().map(|(_, here)| i128::from(*here)).sum();
            parts.extend(devices.iter().map(|(number, here)| (share, Some(*number), i128::from(*here))));
            parts.push((share, None, (i128::from(count) - known).max(0)));
        }
        Self { amounts, parts }
    }

    /// Takes the same and this.
    pub(crate) fn add(&mut self, other: Self) {
        for (ix, amount) in other.amounts {
            *self.amounts.entry(ix).or_insert(0) += amount;
        }
        self.parts.extend(other.parts);
    }
}

impl Room {
    /// An empty node.
    pub(crate) fn of(allocatable: &ResourceVec) -> Self {
        Self { amounts: product(allocatable, 1).collect(), ..Self::default() }
    }

    /// Takes something out; with a negative sign, has it back.
    pub(crate) fn turn(&mut self, take: &Take, sign: i128) {
        for (ix, amount) in &take.amounts {
            *self.amounts.entry(*ix).or_insert(0) -= sign * amount;
        }
        for (share, number, count) in &take.parts {
            let (device, milli) = (share.device(), share.milli());
            match number {
                Some(number) => {
                    *self.numbered.entry((device, *number)).or_insert(0) += sign * count * i128::from(milli);
                }
                None => *self.unknown.entry((device, milli)).or_insert(0) += sign * count,
            }
        }
    }

    /// How much there is of a resource; of devices those that nobody shares.
    pub(crate) fn whole(&self, ix: ResourceIx) -> i128 {
        self.amounts.get(&ix).copied().unwrap_or(0) - self.opened(ix)
    }

    /// The devices of which more is taken than there is, and by how many thousandths.
    pub(crate) fn overfull(&self) -> impl Iterator<Item = (ResourceIx, u32, i128)> + '_ {
        let over = self.numbered.iter().filter(|(_, milli)| **milli > 1000);
        over.map(|((device, number), milli)| (*device, *number, milli - 1000))
    }

    /// Puts as many pods of a set here as there is room for, `most` at most, each share on the first device with enough
    /// left. Returns how many, and how many of them on the device of which number.
    pub(crate) fn put(&mut self, pod_set: &PodSet, most: u32) -> (u32, Vec<(u32, u32)>) {
        let mut fitting = i128::from(most);
        for (ix, amount) in pod_set.request.iter().filter(|(_, amount)| amount.0 > 0) {
            let here = if amount == Amount::MAX { 0 } else { self.whole(ix).max(0) };
            fitting = fitting.min(here / i128::from(amount.0));
        }
        let mut fitting = u32::try_from(fitting).unwrap_or(0);
        let mut devices: BTreeMap<u32, u32> = BTreeMap::new();
        if let Some(share) = pod_set.share {
            for pod in 0..fitting {
                let Some(number) = self.first_with(share) else {
                    fitting = pod;
                    break;
                };
                *self.numbered.entry((share.device(), number)).or_insert(0) += i128::from(share.milli());
                *devices.entry(number).or_insert(0) += 1;
            }
        }
        for (ix, amount) in product(&pod_set.request, fitting) {
            *self.amounts.entry(ix).or_insert(0) -= amount;
        }
        (fitting, devices.into_iter().collect())
    }

    fn first_with(&self, share: DeviceShare) -> Option<u32> {
        let device = share.device();
        if self.whole(device) < 0 {
            return None; // One of those that are shared is not there.
        }
        let open = self.open(device).find(|(_, milli)| milli + i128::from(share.milli()) <= 1000);
        open.map(|(number, _)| number).or_else(|| {
            let fresh = (0..u32::MAX).find(|number| self.open(device).all(|(other, _)| other != *number));
            fresh.filter(|_| self.whole(device) > 0)
        })
    }

    fn open(&self, device: ResourceIx) -> impl Iterator<Item = (u32, i128)> + '_ {
        let here = self.numbered.range((device, 0)..=(device, u32::MAX)).filter(|(_, milli)| **milli > 0);
        here.map(|((_, number), milli)| (*number, *milli))
    }

    /// How many devices are shared. Shares on devices that nobody knows are packed the largest first, where they fit
    /// tightest, and apart from the others.
    fn opened(&self, device: ResourceIx) -> i128 {
        let mut bins: Vec<u16> = Vec::new();
        for ((_, milli), count) in self.unknown.range((device, 0)..=(device, u16::MAX)).rev() {
            for _ in 0..*count {
                match bins.iter_mut().filter(|left| **left >= *milli).min_by_key(|left| **left) {
                    Some(left) => *left -= milli,
                    None => bins.push(1000 - milli),
                }
            }
        }
        self.open(device).count() as i128 + bins.len() as i128
    }
}

/// What a request amounts to `times` times, by resource.
pub(crate) fn product(request: &ResourceVec, times: u32) -> impl Iterator<Item = (ResourceIx, i128)> + '_ {
    request.iter().map(move |(ix, amount)| (ix, i128::from(amount.0) * i128::from(times)))
}
