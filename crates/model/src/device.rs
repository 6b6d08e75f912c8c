//! Devices that pods can share: GPUs and the like, of which a pod takes whole ones or a part of one.
//!
//! Whole devices are countable amounts like any other resource. The first share of a device opens it: it is no longer one
//! of those that can be had whole, and what is left of it is kept apart. So a [`FreeResources`] on which nobody shares anything is
//! nothing but a vector of amounts.
//!
//! A shared device has a number on its node: the lowest that no other shared device there has. Which physical device that
//! is, is decided where pods are started; pods with the same number belong onto the same one.

use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::gang::PodSet;
use crate::resources::{ResourceIx, ResourceMask, ResourceVec};

/// A whole device, in thousandths.
const WHOLE: u16 = 1000;

/// The part of one device that a pod takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceShare {
    device: ResourceIx,
    milli: u16, // Invariant: from 1 to 999.
}

/// Why something is no share of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceShareError {
    /// Less than a thousandth, or a device or more.
    #[error(
        "a share of one device is from 1 to 999 thousandths, not {0}; ask for whole devices as an amount"
    )]
    Milli(i64),
    /// A resource that is no device.
    #[error("cpu, memory and pods are not devices")]
    NoDevice,
}

impl DeviceShare {
    /// This many thousandths of one device.
    pub fn new(device: ResourceIx, milli: i64) -> Result<Self, DeviceShareError> {
        match u16::try_from(milli) {
            _ if device <= ResourceIx::PODS => Err(DeviceShareError::NoDevice),
            Ok(milli @ 1..WHOLE) => Ok(Self { device, milli }),
            Ok(_) | Err(_) => Err(DeviceShareError::Milli(milli)),
        }
    }

    /// The resource that counts such devices.
    pub fn device(self) -> ResourceIx {
        self.device
    }

    /// How many thousandths of it.
    pub fn milli(self) -> u16 {
        self.milli
    }

    /// What it has more than another share of such a device.
    #[must_use]
    pub fn beyond(self, other: Option<Self>) -> Option<Self> {
        let other = other.filter(|other| other.device == self.device).map_or(0, |other| other.milli);
        (self.milli > other).then(|| Self { milli: self.milli - other, ..self })
    }
}

/// What is taken of shared devices of one node. Adding and later taking away leaves no trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceShares {
    /// Thousandths taken of each device, by its number. Without zeros.
    numbered: BTreeMap<(ResourceIx, u32), i64>,
    /// How many shares of a size are on devices that nobody knows. Without zeros.
    loose: BTreeMap<DeviceShare, i64>,
}

impl DeviceShares {
    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.numbered.is_empty() && self.loose.is_empty()
    }

    /// Takes shares on the device of this number, or on some device.
    pub fn put(&mut self, share: DeviceShare, number: Option<u32>, count: u32) {
        self.turn(share, number, i64::from(count));
    }

    /// Takes what `other` has as well.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, 1);
    }

    /// Gives back what `other` has.
    pub fn sub(&mut self, other: &Self) {
        self.merge(other, -1);
    }

    /// Of each device as much as the one of the two takes that takes more.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        for (at, milli) in &other.numbered {
            let mine = self.numbered.entry(*at).or_default();
            *mine = (*mine).max(*milli);
        }
        for (share, count) in &other.loose {
            let mine = self.loose.entry(*share).or_default();
            *mine = (*mine).max(*count);
        }
        self
    }

    /// Takes `count` shares where they fit tightest, and says how many on the device of which number: the one of which
    /// least is left that is enough, then the one with the lowest number; a device that nobody shares when there is none.
    ///
    /// See [`FreeResources::take`], which does the same without numbers.
    pub fn place(&mut self, share: DeviceShare, count: u32) -> Vec<(u32, u32)> {
        let numbers = self.numbered.range((share.device, 0)..=(share.device, u32::MAX));
        let mut open: Vec<(u16, u32)> = numbers.map(|((_, number), milli)| (left(*milli), *number)).collect();
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
            while self.numbered.contains_key(&(share.device, number)) {
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

    /// Whether more is taken than there is of a device of which `part` is a part.
    pub fn overcommits_devices_of(&self, part: &Self) -> bool {
        let taken = part.numbered.keys().filter_map(|at| self.numbered.get(at));
        taken.into_iter().any(|milli| *milli > i64::from(WHOLE))
    }

    /// What is left of every device that is open, sorted. Of devices that nobody knows nothing can be had; there are as
    /// many as the shares on them need when they are packed, the largest first, where they fit tightest.
    fn left(&self) -> Vec<(ResourceIx, u16)> {
        let mut open: Vec<_> =
            self.numbered.iter().map(|((device, _), milli)| (*device, left(*milli))).collect();
        let mut loose = FreeResources::default();
        for (share, count) in self.loose.iter().rev() {
            loose.take_share(*share, u32::try_from(*count).unwrap_or(0));
        }
        open.extend(loose.open.iter().map(|(device, _)| (*device, 0)));
        open.sort_unstable();
        open
    }

    fn merge(&mut self, other: &Self, sign: i64) {
        for ((device, number), milli) in &other.numbered {
            change(&mut self.numbered, (*device, *number), sign * milli);
        }
        for (share, count) in &other.loose {
            change(&mut self.loose, *share, sign * count);
        }
    }

    fn turn(&mut self, share: DeviceShare, number: Option<u32>, count: i64) {
        match number {
            Some(number) => {
                change(&mut self.numbered, (share.device, number), i64::from(share.milli) * count);
            }
            None => change(&mut self.loose, share, count),
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

/// What is left of a device.
fn left(taken: i64) -> u16 {
    u16::try_from(i64::from(WHOLE).saturating_sub(taken).max(0)).unwrap_or(WHOLE)
}

/// What holders take of a node: amounts, and shares of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedResources {
    /// Amounts; of devices the whole ones.
    pub amounts: ResourceVec,
    /// Shares of devices.
    pub shares: DeviceShares,
}

/// What is free on a node. Nodes with equal rooms are alike to any pod that may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FreeResources {
    /// Amounts; of devices those that nobody shares. May be negative; no share of such a device can be had.
    pub amounts: ResourceVec,
    /// What is left of each device that is shared, in thousandths; sorted.
    open: Vec<(ResourceIx, u16)>,
}

impl From<ResourceVec> for FreeResources {
    /// A room in which no device is shared.
    fn from(amounts: ResourceVec) -> Self {
        Self { amounts, open: Vec::new() }
    }
}

impl FreeResources {
    /// What `amounts` leave when these shares are taken as well.
    pub fn new(amounts: ResourceVec, shares: &DeviceShares) -> Self {
        if shares.is_empty() {
            return amounts.into();
        }
        let mut room = Self { amounts, open: shares.left() };
        for at in 0..room.open.len() {
            room.withdraw(room.open[at].0, 1);
        }
        room
    }

    /// The most that is left of one device, in thousandths.
    pub fn largest_share(&self, device: ResourceIx) -> u16 {
        if self.is_overcommitted(device) {
            return 0;
        }
        let whole = if self.amounts.get(device).0 > 0 { WHOLE } else { 0 };
        self.of(device).last().map_or(whole, |(_, left)| whole.max(*left))
    }

    /// The amounts that would be free if the devices that are shared were not.
    pub fn with_whole_devices(&self) -> ResourceVec {
        let mut amounts = self.amounts.clone();
        for (device, _) in &self.open {
            let whole = ResourceVec::new().with(*device, 1);
            amounts.add(&whole);
        }
        amounts
    }

    /// What is left of each device that is shared, in thousandths; sorted.
    pub fn shared_devices(&self) -> &[(ResourceIx, u16)] {
        &self.open
    }

    /// For how many shares of devices there is room; at most `most`.
    pub fn shares_in(&self, share: DeviceShare, most: u32) -> u32 {
        if self.is_overcommitted(share.device) {
            return 0;
        }
        let whole = self.amounts.get(share.device).0;
        let opened = whole.saturating_mul(i64::from(WHOLE / share.milli));
        let here = self.of(share.device).iter().map(|(_, left)| i64::from(left / share.milli)).sum::<i64>();
        u32::try_from(opened.saturating_add(here)).unwrap_or(u32::MAX).min(most)
    }

    /// Takes pods of a set out, for which there has to be room. A share goes to the device on which it fits tightest; a
    /// device that nobody shares is opened when there is none.
    pub fn take(&mut self, pod_set: &PodSet, count: u32) {
        self.amounts.sub(&pod_set.request.times(count));
        if let Some(share) = pod_set.share {
            self.take_share(share, count);
        }
    }

    /// The resources of which `self` has more than `before`: of devices, more of which so much is left, for some amount.
    pub fn increased_since(&self, before: &Self) -> ResourceMask {
        let mut risen = self.amounts.increased_since(&before.amounts);
        if self.open != before.open {
            let devices = self.open.iter().map(|(device, _)| *device);
            risen = devices.filter(|device| self.has_larger(*device, before)).fold(risen, ResourceMask::with);
        }
        risen
    }

    /// Whether some n-th largest rest of a device is larger than before. Devices that nobody shares are the largest.
    fn has_larger(&self, device: ResourceIx, before: &Self) -> bool {
        if self.is_overcommitted(device) {
            return false;
        }
        let whole = |room: &Self| room.amounts.get(device).0.max(0);
        let newly_opened = usize::try_from(whole(before).saturating_sub(whole(self))).unwrap_or(0);
        let (now, then) = (self.of(device).iter().rev(), before.of(device).iter().rev());
        let then = then.map(|(_, left)| *left).chain(std::iter::repeat(0));
        now.skip(newly_opened).zip(then).any(|((_, left), then)| *left > then)
    }

    /// More devices are shared than the node has: some of them are not there, and nobody knows which.
    pub fn is_overcommitted(&self, device: ResourceIx) -> bool {
        self.amounts.get(device) < Amount::ZERO
    }

    fn take_share(&mut self, share: DeviceShare, count: u32) {
        let mut rest = count;
        let from = self.open.partition_point(|open| *open < (share.device, share.milli));
        // Once the tightest has taken one it is the tightest still: each is filled before the next.
        for (_, left) in self.open[from..].iter_mut().take_while(|(device, _)| *device == share.device) {
            let here = u32::from(*left / share.milli).min(rest);
            *left -= share.milli * u16::try_from(here).unwrap_or(0);
            rest -= here;
        }
        while rest > 0 {
            let here = (WHOLE / share.milli).min(u16::try_from(rest).unwrap_or(u16::MAX));
            self.withdraw(share.device, 1);
            self.open.push((share.device, WHOLE - here * share.milli));
            rest -= u32::from(here);
        }
        self.open.sort_unstable();
    }

    fn withdraw(&mut self, device: ResourceIx, count: i64) {
        self.amounts.sub(&ResourceVec::new().with(device, count));
    }

    fn of(&self, device: ResourceIx) -> &[(ResourceIx, u16)] {
        let from = self.open.partition_point(|(open, _)| *open < device);
        let to = self.open.partition_point(|(open, _)| *open <= device);
        &self.open[from..to]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: ResourceIx = ResourceIx(3);

    fn share(milli: i64) -> DeviceShare {
        DeviceShare::new(GPU, milli).unwrap()
    }

    fn room(whole: i64, shares: &[(i64, Option<u32>)]) -> FreeResources {
        let mut taken = DeviceShares::default();
        for (milli, number) in shares {
            taken.put(share(*milli), *number, 1);
        }
        FreeResources::new(ResourceVec::new().with(GPU, whole), &taken)
    }

    #[test]
    fn a_share_is_a_part_of_one_device() {
        for milli in [-1, 0, 1000, 1500, i64::MAX] {
            assert_eq!(DeviceShare::new(GPU, milli), Err(DeviceShareError::Milli(milli)));
        }
        assert_eq!(DeviceShare::new(ResourceIx::CPU, 500), Err(DeviceShareError::NoDevice));
        assert_eq!((share(999).milli(), share(1).device()), (999, GPU));
    }

    #[test]
    fn shares_count_by_device() {
        struct Case {
            name: &'static str,
            whole: i64,
            taken: &'static [(i64, Option<u32>)],
            milli: i64,
            fits: u32,
        }
        let cases = [
            Case { name: "two of 600 need two devices", whole: 1, taken: &[], milli: 600, fits: 1 },
            Case { name: "three of 300 share one", whole: 2, taken: &[], milli: 300, fits: 6 },
            Case { name: "an open device counts", whole: 2, taken: &[(600, Some(0))], milli: 400, fits: 3 },
            Case { name: "its rest must be enough", whole: 2, taken: &[(601, Some(0))], milli: 400, fits: 2 },
            Case { name: "nobody knows where", whole: 2, taken: &[(100, None)], milli: 400, fits: 2 },
            Case { name: "overfull", whole: 1, taken: &[(600, Some(0)), (600, Some(0))], milli: 1, fits: 0 },
            Case { name: "more devices than there are", whole: 0, taken: &[(1, None)], milli: 1, fits: 0 },
            Case { name: "a device that is not there", whole: 0, taken: &[(1, Some(0))], milli: 1, fits: 0 },
        ];
        for Case { name, whole, taken, milli, fits } in cases {
            assert_eq!(room(whole, taken).shares_in(share(milli), u32::MAX), fits, "{name}");
        }
    }

    #[test]
    fn taking_by_number_and_without_comes_to_the_same() {
        let mut shares = DeviceShares::default();
        let mut room = FreeResources::from(ResourceVec::new().with(GPU, 20));
        for (milli, count) in [(600, 2), (500, 1), (300, 4), (100, 7), (999, 1), (200, 3)] {
            let placed = shares.place(share(milli), count);
            assert_eq!(placed.iter().map(|(_, count)| count).sum::<u32>(), count);
            room.take_share(share(milli), count);
            assert_eq!(FreeResources::new(ResourceVec::new().with(GPU, 20), &shares), room);
        }
        assert!(!shares.overcommits_devices_of(&shares));
        assert_eq!(room.with_whole_devices(), ResourceVec::new().with(GPU, 20));
    }

    #[test]
    fn a_room_has_risen_when_more_is_left_of_some_device() {
        let mask = ResourceMask::NONE.with(GPU);
        let one = || room(2, &[(300, Some(0))]);
        assert_eq!(one().increased_since(&room(2, &[])), ResourceMask::NONE, "a device was opened");
        assert_eq!(room(2, &[]).increased_since(&one()), mask, "a device was closed");
        assert_eq!(one().increased_since(&room(2, &[(400, Some(0))])), mask, "more is left of it");
        assert_eq!(room(2, &[(400, Some(0))]).increased_since(&one()), ResourceMask::NONE, "less is left of it");
        let moved = room(2, &[(300, Some(1)), (300, Some(0))]).increased_since(&room(2, &[(300, Some(1))]));
        assert_eq!(moved, ResourceMask::NONE, "a second one was opened");
        let none = room(0, &[(300, Some(0))]).increased_since(&room(0, &[]));
        assert_eq!(none, ResourceMask::NONE, "one was opened that is not there");
    }

    #[test]
    fn what_is_given_back_leaves_no_trace() {
        let mut shares = DeviceShares::default();
        shares.put(share(300), Some(4), 2);
        shares.put(share(300), None, 1);
        let all = shares.clone();
        shares.sub(&all);
        assert!(shares.is_empty());
    }
}
