//! Devices that pods can share, such as GPUs. A pod requests whole devices or a share of one device.
//!
//! Whole devices are counted like other resources. When the first share of a device is allocated, the device becomes
//! a shared device. It no longer counts as a free whole device, and its remaining share is tracked separately. On a
//! node without shared devices, [`FreeResources`] is just a vector of amounts.
//!
//! A shared device has a number on its node: the lowest number that no other shared device there has. The
//! physical device of this number is chosen when its pods start. Pods with the same number belong on the same device.

use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::resources::{ResourceIx, ResourceMask, ResourceVec};

/// One device, in thousandths.
const WHOLE: u16 = 1000;

/// The share of one device that a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceShare {
    device: ResourceIx,
    milli: u16, // Invariant: from 1 to 999.
}

/// Why a request is not a valid device share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceShareError {
    /// Less than a thousandth, or a device or more.
    #[error(
        "a share of one device is from 1 to 999 thousandths, not {0}; ask for whole devices as an amount"
    )]
    /// The share is less than a thousandth, or one device or more.
    Milli(i64),
    /// The resource is not a device.
    #[error("cpu, memory and pods are not devices")]
    NoDevice,
}

impl DeviceShare {
    /// A share of one device, in thousandths.
    pub fn new(device: ResourceIx, milli: i64) -> Result<Self, DeviceShareError> {
        match u16::try_from(milli) {
            _ if device <= ResourceIx::PODS => Err(DeviceShareError::NoDevice),
            Ok(milli @ 1..WHOLE) => Ok(Self { device, milli }),
            Ok(_) | Err(_) => Err(DeviceShareError::Milli(milli)),
        }
    }

    /// The resource of the device.
    pub fn device(self) -> ResourceIx {
        self.device
    }

    /// The share in thousandths.
    pub fn milli(self) -> u16 {
        self.milli
    }

    /// The part of this share that exceeds another share of the same resource.
    #[must_use]
    pub fn excess_over(self, other: Option<Self>) -> Option<Self> {
        let other = other.filter(|other| other.device == self.device).map_or(0, |other| other.milli);
        (self.milli > other).then(|| Self { milli: self.milli - other, ..self })
    }
}

/// The shares of devices that are allocated on one node. Adding and later subtracting a share restores the original
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceShares {
    /// Allocated thousandths by device number. Without zeros.
    by_device: BTreeMap<(ResourceIx, u32), i64>,
    /// The number of shares of each size whose device is unknown. Without zeros.
    unassigned: BTreeMap<DeviceShare, i64>,
}

impl DeviceShares {
    /// Whether no share is allocated.
    pub fn is_empty(&self) -> bool {
        self.by_device.is_empty() && self.unassigned.is_empty()
    }

    /// Allocates shares on the device of this number, or on an unknown device.
    pub fn put(&mut self, share: DeviceShare, number: Option<u32>, count: u32) {
        self.change_share(share, number, i64::from(count));
    }

    /// Adds the shares of `other`.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, 1);
    }

    /// Subtracts the shares of `other`.
    pub fn sub(&mut self, other: &Self) {
        self.merge(other, -1);
    }

    /// The larger allocation of the two, per device.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        for (at, milli) in &other.by_device {
            let mine = self.by_device.entry(*at).or_default();
            *mine = (*mine).max(*milli);
        }
        for (share, count) in &other.unassigned {
            let mine = self.unassigned.entry(*share).or_default();
            *mine = (*mine).max(*count);
        }
        self
    }

    /// Allocates `count` shares and returns the number of shares per device number. Chooses the shared device with
    /// the least remaining share that suffices, then the lowest number. Opens a new device when no shared device
    /// suffices.
    ///
    /// [`FreeResources::take`] does the same without device numbers.
    pub fn place(&mut self, share: DeviceShare, count: u32) -> Vec<(u32, u32)> {
        let numbers = self.by_device.range((share.device, 0)..=(share.device, u32::MAX));
        let mut open: Vec<(u16, u32)> =
            numbers.map(|((_, number), milli)| (remaining(*milli), *number)).collect();
        open.sort_unstable();
        let mut placed = Vec::new();
        let mut rest = count;
        for (left, number) in open {
            let here = u32::from(left / share.milli).min(rest);
            if here > 0 {
                placed.push((number, here));
                rest -= here;
            }
        }
        let mut number = 0;
        while rest > 0 {
            let here = u32::from(WHOLE / share.milli).min(rest);
            while self.by_device.contains_key(&(share.device, number)) {
                number += 1;
            }
            placed.push((number, here));
            rest -= here;
            number += 1;
        }
        for (number, count) in &placed {
            self.put(share, Some(*number), *count);
        }
        placed
    }

    /// Whether a device that `part` uses is allocated more than once in full.
    pub fn overcommits_devices_of(&self, part: &Self) -> bool {
        let taken = part.by_device.keys().filter_map(|at| self.by_device.get(at));
        taken.into_iter().any(|milli| *milli > i64::from(WHOLE))
    }

    /// The remaining share of every shared device, sorted. Nothing can be allocated on a device whose number is
    /// unknown. The number of unknown devices is found by packing their shares best fit, in decreasing size.
    fn remaining_by_device(&self) -> Vec<(ResourceIx, u16)> {
        let mut open: Vec<_> =
            self.by_device.iter().map(|((device, _), milli)| (*device, remaining(*milli))).collect();
        let mut unassigned = FreeResources::default();
        for (share, count) in self.unassigned.iter().rev() {
            unassigned.take_share(*share, u32::try_from(*count).unwrap_or(0));
        }
        open.extend(unassigned.shared_devices.iter().map(|(device, _)| (*device, 0)));
        open.sort_unstable();
        open
    }

    fn merge(&mut self, other: &Self, sign: i64) {
        for ((device, number), milli) in &other.by_device {
            change(&mut self.by_device, (*device, *number), sign * milli);
        }
        for (share, count) in &other.unassigned {
            change(&mut self.unassigned, *share, sign * count);
        }
    }

    fn change_share(&mut self, share: DeviceShare, number: Option<u32>, count: i64) {
        match number {
            Some(number) => {
                change(&mut self.by_device, (share.device, number), i64::from(share.milli) * count);
            }
            None => change(&mut self.unassigned, share, count),
        }
    }
}

fn change<K: Ord>(map: &mut BTreeMap<K, i64>, key: K, by: i64) {
    let value = map.get(&key).copied().unwrap_or(0).saturating_add(by);
    if value == 0 {
        map.remove(&key);
    } else {
        map.insert(key, value);
    }
}

/// The remaining share of a device.
fn remaining(taken: i64) -> u16 {
    u16::try_from(i64::from(WHOLE).saturating_sub(taken).max(0)).unwrap_or(WHOLE)
}

/// The resources of one node that are allocated to pods and reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedResources {
    /// The amounts; for devices, the whole ones.
    pub amounts: ResourceVec,
    /// The shares of devices.
    pub shares: DeviceShares,
}

/// The free resources of a node. Nodes with equal free resources are interchangeable for every pod that is eligible
/// for both.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FreeResources {
    /// The free amounts; for devices, those that are not shared. Negative when the node is overcommitted; no share of
    /// an overcommitted device is available.
    pub amounts: ResourceVec,
    /// The remaining share of each shared device in thousandths, sorted.
    shared_devices: Vec<(ResourceIx, u16)>,
}

impl From<ResourceVec> for FreeResources {
    /// Free resources without a shared device.
    fn from(amounts: ResourceVec) -> Self {
        Self { amounts, shared_devices: Vec::new() }
    }
}

impl FreeResources {
    /// The free resources when these shares are allocated out of `amounts`.
    pub fn new(amounts: ResourceVec, shares: &DeviceShares) -> Self {
        if shares.is_empty() {
            return amounts.into();
        }
        let mut free = Self { amounts, shared_devices: shares.remaining_by_device() };
        for at in 0..free.shared_devices.len() {
            free.take_whole(free.shared_devices[at].0, 1);
        }
        free
    }

    /// The largest free share of one device, in thousandths.
    pub fn largest_share(&self, device: ResourceIx) -> u16 {
        if self.is_overcommitted(device) {
            return 0;
        }
        let whole = if self.amounts.get(device).0 > 0 { WHOLE } else { 0 };
        self.shared(device).last().map_or(whole, |(_, left)| whole.max(*left))
    }

    /// The free amounts when shared devices count as free whole devices.
    pub fn with_whole_devices(&self) -> ResourceVec {
        let mut amounts = self.amounts.clone();
        for (device, _) in &self.shared_devices {
            let whole = ResourceVec::new().with(*device, 1);
            amounts.add(&whole);
        }
        amounts
    }

    /// The remaining share of each shared device in thousandths, sorted.
    pub fn shared_devices(&self) -> &[(ResourceIx, u16)] {
        &self.shared_devices
    }

    /// The number of shares that fit; at most `most`.
    pub fn shares_in(&self, share: DeviceShare, most: u32) -> u32 {
        if self.is_overcommitted(share.device) {
            return 0;
        }
        let whole = self.amounts.get(share.device).0;
        let opened = whole.saturating_mul(i64::from(WHOLE / share.milli));
        let here =
            self.shared(share.device).iter().map(|(_, left)| i64::from(left / share.milli)).sum::<i64>();
        u32::try_from(opened.saturating_add(here)).unwrap_or(u32::MAX).min(most)
    }

    /// The resources of which more is free than in `before`. For devices: the n-th largest remaining share increased
    /// for some n.
    pub fn increased_since(&self, before: &Self) -> ResourceMask {
        let mut risen = self.amounts.increased_since(&before.amounts);
        if self.shared_devices != before.shared_devices {
            let devices = self.shared_devices.iter().map(|(device, _)| *device);
            risen = devices.filter(|device| self.has_larger(*device, before)).fold(risen, ResourceMask::with);
        }
        risen
    }

    /// Whether the n-th largest remaining share of a device increased for some n. Whole devices are the largest.
    fn has_larger(&self, device: ResourceIx, before: &Self) -> bool {
        if self.is_overcommitted(device) {
            return false;
        }
        let whole = |free: &Self| free.amounts.get(device).0.max(0);
        let newly_opened = usize::try_from(whole(before).saturating_sub(whole(self))).unwrap_or(0);
        let (now, then) = (self.shared(device).iter().rev(), before.shared(device).iter().rev());
        let then = then.map(|(_, left)| *left).chain(std::iter::repeat(0));
        now.skip(newly_opened).zip(then).any(|((_, left), then)| *left > then)
    }

    /// More devices are shared than the node has, so some of the shared devices do not exist.
    pub fn is_overcommitted(&self, device: ResourceIx) -> bool {
        self.amounts.get(device) < Amount::ZERO
    }

    /// Allocates shares, which must fit.
    pub(crate) fn take_share(&mut self, share: DeviceShare, count: u32) {
        let mut rest = count;
        let from = self.shared_devices.partition_point(|open| *open < (share.device, share.milli));
        // The tightest device stays the tightest after an allocation, so each device is filled before the next.
        for (_, left) in
            self.shared_devices[from..].iter_mut().take_while(|(device, _)| *device == share.device)
        {
            let here = u32::from(*left / share.milli).min(rest);
            *left -= share.milli * u16::try_from(here).unwrap_or(0);
            rest -= here;
        }
        while rest > 0 {
            let here = (WHOLE / share.milli).min(u16::try_from(rest).unwrap_or(u16::MAX));
            self.take_whole(share.device, 1);
            self.shared_devices.push((share.device, WHOLE - here * share.milli));
            rest -= u32::from(here);
        }
        self.shared_devices.sort_unstable();
    }

    fn take_whole(&mut self, device: ResourceIx, count: i64) {
        self.amounts.sub(&ResourceVec::new().with(device, count));
    }

    fn shared(&self, device: ResourceIx) -> &[(ResourceIx, u16)] {
        let from = self.shared_devices.partition_point(|(open, _)| *open < device);
        let to = self.shared_devices.partition_point(|(open, _)| *open <= device);
        &self.shared_devices[from..to]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: ResourceIx = ResourceIx(3);

    fn share(milli: i64) -> DeviceShare {
        DeviceShare::new(GPU, milli).unwrap()
    }

    fn free(whole: i64, shares: &[(i64, Option<u32>)]) -> FreeResources {
        let mut taken = DeviceShares::default();
        for (milli, number) in shares {
            taken.put(share(*milli), *number, 1);
        }
        FreeResources::new(ResourceVec::new().with(GPU, whole), &taken)
    }

    #[test]
    fn a_share_of_none_or_of_a_whole_device_is_rejected() {
        for milli in [-1, 0, 1000, 1500, i64::MAX] {
            assert_eq!(DeviceShare::new(GPU, milli), Err(DeviceShareError::Milli(milli)));
        }
        assert_eq!(DeviceShare::new(ResourceIx::CPU, 500), Err(DeviceShareError::NoDevice));
        assert_eq!((share(999).milli(), share(1).device()), (999, GPU));
    }

    #[test]
    fn shares_fit_device_by_device() {
        struct Case {
            name: &'static str,
            whole: i64,
            taken: &'static [(i64, Option<u32>)],
            milli: i64,
            fits: u32,
        }
        let cases = [
            Case { name: "two of 600 need two devices", whole: 1, taken: &[], milli: 600, fits: 1 },
            Case { name: "three of 300 share one device", whole: 2, taken: &[], milli: 300, fits: 6 },
            Case { name: "a shared device counts", whole: 2, taken: &[(600, Some(0))], milli: 400, fits: 3 },
            Case {
                name: "the remaining share must be enough",
                whole: 2,
                taken: &[(601, Some(0))],
                milli: 400,
                fits: 2,
            },
            Case { name: "the device is unknown", whole: 2, taken: &[(100, None)], milli: 400, fits: 2 },
            Case {
                name: "overcommitted",
                whole: 1,
                taken: &[(600, Some(0)), (600, Some(0))],
                milli: 1,
                fits: 0,
            },
            Case { name: "more devices than there are", whole: 0, taken: &[(1, None)], milli: 1, fits: 0 },
            Case { name: "the device does not exist", whole: 0, taken: &[(1, Some(0))], milli: 1, fits: 0 },
        ];
        for Case { name, whole, taken, milli, fits } in cases {
            assert_eq!(free(whole, taken).shares_in(share(milli), u32::MAX), fits, "{name}");
        }
    }

    #[test]
    fn allocation_with_and_without_device_numbers_gives_the_same_free_resources() {
        let mut shares = DeviceShares::default();
        let mut free = FreeResources::from(ResourceVec::new().with(GPU, 20));
        for (milli, count) in [(600, 2), (500, 1), (300, 4), (100, 7), (999, 1), (200, 3)] {
            let placed = shares.place(share(milli), count);
            assert_eq!(placed.iter().map(|(_, count)| count).sum::<u32>(), count);
            free.take_share(share(milli), count);
            assert_eq!(FreeResources::new(ResourceVec::new().with(GPU, 20), &shares), free);
        }
        assert!(!shares.overcommits_devices_of(&shares));
        assert_eq!(free.with_whole_devices(), ResourceVec::new().with(GPU, 20));
    }

    #[test]
    fn free_resources_increase_when_a_device_has_more_left() {
        let mask = ResourceMask::NONE.with(GPU);
        let one = || free(2, &[(300, Some(0))]);
        assert_eq!(one().increased_since(&free(2, &[])), ResourceMask::NONE, "a device was opened");
        assert_eq!(free(2, &[]).increased_since(&one()), mask, "a device was closed");
        assert_eq!(one().increased_since(&free(2, &[(400, Some(0))])), mask, "more is left of it");
        assert_eq!(
            free(2, &[(400, Some(0))]).increased_since(&one()),
            ResourceMask::NONE,
            "less is left of it"
        );
        let reopened =
            free(2, &[(300, Some(1)), (300, Some(0))]).increased_since(&free(2, &[(300, Some(1))]));
        assert_eq!(reopened, ResourceMask::NONE, "a second one was opened");
        let none = free(0, &[(300, Some(0))]).increased_since(&free(0, &[]));
        assert_eq!(none, ResourceMask::NONE, "a device was opened that does not exist");
    }

    #[test]
    fn subtracting_all_shares_leaves_none() {
        let mut shares = DeviceShares::default();
        shares.put(share(300), Some(4), 2);
        shares.put(share(300), None, 1);
        let all = shares.clone();
        shares.sub(&all);
        assert!(shares.is_empty());
    }
}
