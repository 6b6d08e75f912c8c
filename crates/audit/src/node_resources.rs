//! Free resources of one node, device by device, without rounding.

use std::collections::BTreeMap;

use model::{Amount, DeviceShare, PodSet, ResourceIx, ResourceVec};

/// Amounts by resource, exact.
pub(crate) type Amounts = BTreeMap<ResourceIx, i128>;

/// Resources used on a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeUsage {
    pub(crate) amounts: Amounts,
    /// Device shares: the share, the number of the device (`None` when it is unknown), and the number of pods.
    pub(crate) device_shares: Vec<(DeviceShare, Option<u32>, i128)>,
}

/// Free resources of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeResources {
    /// Free amounts, not counting shared devices.
    amounts: Amounts,
    /// Used thousandths of each shared device, by device number.
    by_device: BTreeMap<(ResourceIx, u32), i128>,
    /// The number of shares of each size on unknown devices.
    on_unknown_devices: BTreeMap<(ResourceIx, u16), i128>,
}

impl NodeUsage {
    /// The usage of `count` pods of a set. `devices` holds the number of pods per device; the remaining pods are on
    /// unknown devices.
    pub(crate) fn of(pod_set: &PodSet, count: u32, devices: &[(u32, u32)]) -> Self {
        let amounts = product(&pod_set.request, count).collect();
        let mut device_shares = Vec::new();
        if let Some(share) = pod_set.share {
            let known: i128 = devices.iter().map(|(_, here)| i128::from(*here)).sum();
            device_shares
                .extend(devices.iter().map(|(number, here)| (share, Some(*number), i128::from(*here))));
            device_shares.push((share, None, (i128::from(count) - known).max(0)));
        }
        Self { amounts, device_shares }
    }

    /// Adds other usage.
    pub(crate) fn add(&mut self, other: Self) {
        for (ix, amount) in other.amounts {
            *self.amounts.entry(ix).or_insert(0) += amount;
        }
        self.device_shares.extend(other.device_shares);
    }
}

impl FreeResources {
    /// The free resources of an empty node.
    pub(crate) fn of(allocatable: &ResourceVec) -> Self {
        Self { amounts: product(allocatable, 1).collect(), ..Self::default() }
    }

    /// Subtracts usage for sign 1, and adds it back for sign -1.
    pub(crate) fn apply(&mut self, usage: &NodeUsage, sign: i128) {
        for (ix, amount) in &usage.amounts {
            *self.amounts.entry(*ix).or_insert(0) -= sign * amount;
        }
        for (share, number, count) in &usage.device_shares {
            let (device, milli) = (share.device(), share.milli());
            match number {
                Some(number) => {
                    *self.by_device.entry((device, *number)).or_insert(0) += sign * count * i128::from(milli);
                }
                None => *self.on_unknown_devices.entry((device, milli)).or_insert(0) += sign * count,
            }
        }
    }

    /// The free amount of a resource. For devices, the number of unshared ones.
    pub(crate) fn available(&self, ix: ResourceIx) -> i128 {
        self.amounts.get(&ix).copied().unwrap_or(0) - self.shared_device_count(ix)
    }

    /// The overcommitted shared devices, and by how many thousandths.
    pub(crate) fn overcommitted_devices(&self) -> impl Iterator<Item = (ResourceIx, u32, i128)> + '_ {
        let over = self.by_device.iter().filter(|(_, milli)| **milli > 1000);
        over.map(|((device, number), milli)| (*device, *number, milli - 1000))
    }

    /// Places as many pods of a set as fit, at most `limit`, each share on the first device with enough left. Returns
    /// the number of pods, and the number of pods per device.
    pub(crate) fn place(&mut self, pod_set: &PodSet, limit: u32) -> (u32, Vec<(u32, u32)>) {
        let mut fitting = i128::from(limit);
        for (ix, amount) in pod_set.request.iter().filter(|(_, amount)| amount.0 > 0) {
            let here = if amount == Amount::MAX { 0 } else { self.available(ix).max(0) };
            fitting = fitting.min(here / i128::from(amount.0));
        }
        let mut fitting = u32::try_from(fitting).unwrap_or(0);
        let mut devices: BTreeMap<u32, u32> = BTreeMap::new();
        if let Some(share) = pod_set.share {
            for pod in 0..fitting {
                let Some(number) = self.first_device_with_room(share) else {
                    fitting = pod;
                    break;
                };
                *self.by_device.entry((share.device(), number)).or_insert(0) += i128::from(share.milli());
                *devices.entry(number).or_insert(0) += 1;
            }
        }
        for (ix, amount) in product(&pod_set.request, fitting) {
            *self.amounts.entry(ix).or_insert(0) -= amount;
        }
        (fitting, devices.into_iter().collect())
    }

    fn first_device_with_room(&self, share: DeviceShare) -> Option<u32> {
        let device = share.device();
        if self.available(device) < 0 {
            return None; // A shared device is missing on the node.
        }
        let shared = self.shared_devices(device).find(|(_, milli)| milli + i128::from(share.milli()) <= 1000);
        shared.map(|(number, _)| number).or_else(|| {
            let unused =
                (0..u32::MAX).find(|number| self.shared_devices(device).all(|(other, _)| other != *number));
            unused.filter(|_| self.available(device) > 0)
        })
    }

    fn shared_devices(&self, device: ResourceIx) -> impl Iterator<Item = (u32, i128)> + '_ {
        let here = self.by_device.range((device, 0)..=(device, u32::MAX)).filter(|(_, milli)| **milli > 0);
        here.map(|((_, number), milli)| (*number, *milli))
    }

    /// The number of shared devices. Shares on unknown devices are packed best-fit decreasing, apart from the known
    /// ones.
    fn shared_device_count(&self, device: ResourceIx) -> i128 {
        let mut devices: Vec<u16> = Vec::new();
        for ((_, milli), count) in self.on_unknown_devices.range((device, 0)..=(device, u16::MAX)).rev() {
            for _ in 0..*count {
                match devices.iter_mut().filter(|left| **left >= *milli).min_by_key(|left| **left) {
                    Some(left) => *left -= milli,
                    None => devices.push(1000 - milli),
                }
            }
        }
        self.shared_devices(device).count() as i128 + devices.len() as i128
    }
}

/// A request multiplied by `times`, by resource.
pub(crate) fn product(request: &ResourceVec, times: u32) -> impl Iterator<Item = (ResourceIx, i128)> + '_ {
    request.iter().map(move |(ix, amount)| (ix, i128::from(amount.0) * i128::from(times)))
}

/// The number of pods planned on each node, and on each device where it is known.
pub(crate) fn count_slots<'a>(
    places: &'a [(String, u32)],
    devices: Option<&'a Vec<(String, u32, u32)>>,
) -> BTreeMap<(&'a str, Option<u32>), u64> {
    let mut slots: BTreeMap<(&str, Option<u32>), u64> = BTreeMap::new();
    for (node, count) in places {
        *slots.entry((node, None)).or_default() += u64::from(*count);
    }
    for (node, number, count) in devices.into_iter().flatten() {
        let Some(unknown) = slots.get_mut(&(node.as_str(), None)) else { continue };
        let here = u64::from(*count).min(*unknown);
        *unknown -= here;
        *slots.entry((node, Some(*number))).or_default() += here;
    }
    slots
}
