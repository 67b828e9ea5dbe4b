//! From a word to a place, as pure functions over the info of ranked adapters.

use super::selector::{Selector, read};
use super::{
    AdapterInfo, AdapterKind, Choice, DeviceError, DeviceList, WgslDevice, choose, selectors,
};

/// The environment variable that says what [`WgslDevice::Auto`] means.
///
/// It takes the words that a [`WgslDevice`] is read from. Empty is the same as not set.
pub const DEVICE_VARIABLE: &str = "BURN_WGSL_DEVICE";

/// Where a device's tensors live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolvedDevice {
    /// The CPU, with no adapter involved.
    Cpu,
    /// The adapter at this index of the list of adapters.
    Adapter(usize),
}

/// What [`WgslDevice::Auto`] means in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automatic {
    /// The device it stands for, never `Auto`.
    pub device: WgslDevice,
    /// Where that device is.
    pub place: ResolvedDevice,
    /// Why, in words for a person.
    pub reason: String,
    /// What [`DEVICE_VARIABLE`] is set to, if it is.
    pub environment: Option<String>,
    /// Whether it is the CPU for want of a GPU, not because someone asked for it.
    pub no_gpu_found: bool,
}

/// Reads a device. The adapters are asked for only by `name:` and by an error's list.
pub(super) fn parse<'a, F>(
    text: &str,
    adapters: impl FnOnce() -> &'a [F],
) -> Result<WgslDevice, DeviceError>
where
    F: AsRef<AdapterInfo> + 'a,
{
    match read(text) {
        Some(Selector::Device(device)) => Ok(device),
        Some(Selector::Name(name)) => {
            let ranked = adapters();
            named(&name, ranked)
                .ok_or_else(|| DeviceError::NoSuchName { name, here: DeviceList::of(ranked) })
        }
        None => Err(DeviceError::UnknownSelector {
            text: text.to_owned(),
            here: DeviceList::of(adapters()),
        }),
    }
}

/// The best ranked adapter with `name` in its name, as the word that reaches it.
fn named<F: AsRef<AdapterInfo>>(name: &str, ranked: &[F]) -> Option<WgslDevice> {
    let has_name = |i: &usize| ranked[*i].as_ref().name.to_lowercase().contains(name);
    let mut found = (0..ranked.len()).filter(has_name);
    found.find_map(|i| selectors(ranked, i).first().copied())
}

/// Where a device is; `Auto` is taken by rank alone here, [`resolve_auto`] asks the environment first.
pub(super) fn locate<F: AsRef<AdapterInfo>>(
    device: WgslDevice,
    ranked: &[F],
) -> Result<ResolvedDevice, DeviceError> {
    let nth = |n: usize, wanted: &dyn Fn(AdapterKind) -> bool| {
        let mut found = (0..ranked.len()).filter(|&i| wanted(ranked[i].as_ref().kind));
        found.nth(n)
    };
    let of_kind = |n, kind| nth(n, &|k| k == kind);
    let index = match device {
        WgslDevice::Cpu => return Ok(ResolvedDevice::Cpu),
        WgslDevice::Auto => {
            let choice = choose(ranked);
            return Ok(choice.adapter.map_or(ResolvedDevice::Cpu, ResolvedDevice::Adapter));
        }
        WgslDevice::Gpu(n) => nth(n, &|kind| kind != AdapterKind::Software),
        WgslDevice::Discrete(n) => of_kind(n, AdapterKind::Discrete),
        WgslDevice::Integrated(n) => of_kind(n, AdapterKind::Integrated),
        WgslDevice::Virtual(n) => of_kind(n, AdapterKind::Virtual),
        WgslDevice::Software => of_kind(0, AdapterKind::Software),
    };
    index
        .map(ResolvedDevice::Adapter)
        .ok_or_else(|| DeviceError::NotThere { device, here: DeviceList::of(ranked) })
}

/// What `Auto` stands for, given what [`DEVICE_VARIABLE`] is set to.
///
/// The adapters are not asked for when the variable says `cpu`.
pub(super) fn resolve_auto<'a, F>(
    environment: Option<String>,
    adapters: impl Fn() -> &'a [F],
) -> Result<Automatic, DeviceError>
where
    F: AsRef<AdapterInfo> + 'a,
{
    let environment = environment.filter(|value| !value.trim().is_empty());
    let Some(value) = environment else {
        return Ok(by_rank(adapters(), None));
    };
    let in_environment =
        |cause| DeviceError::Environment { value: value.clone(), cause: Box::new(cause) };
    let (device, place) = match parse(&value, &adapters).map_err(in_environment)? {
        WgslDevice::Auto => return Ok(by_rank(adapters(), Some(value))),
        WgslDevice::Cpu => (WgslDevice::Cpu, ResolvedDevice::Cpu),
        device => {
            let place = locate(device, adapters()).map_err(in_environment)?;
            (device, place)
        }
    };
    Ok(Automatic {
        device,
        place,
        reason: format!("{DEVICE_VARIABLE}={value} asks for it"),
        environment: Some(value),
        no_gpu_found: false,
    })
}

fn by_rank<F: AsRef<AdapterInfo>>(ranked: &[F], environment: Option<String>) -> Automatic {
    let Choice { adapter, reason } = choose(ranked);
    Automatic {
        // GPUs come first among ranked adapters, so the index is also the GPU's number.
        device: adapter.map_or(WgslDevice::Cpu, WgslDevice::Gpu),
        place: adapter.map_or(ResolvedDevice::Cpu, ResolvedDevice::Adapter),
        reason,
        environment,
        no_gpu_found: adapter.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Api;
    use super::*;

    fn adapter(name: &str, kind: AdapterKind) -> AdapterInfo {
        AdapterInfo { name: name.to_owned(), kind, api: Api::Vulkan, ..AdapterInfo::default() }
    }

    /// A discrete, two integrated, two software adapters, in rank order.
    fn machine() -> [AdapterInfo; 5] {
        [
            adapter("Radeon RX", AdapterKind::Discrete),
            adapter("Radeon Graphics", AdapterKind::Integrated),
            adapter("UHD Graphics", AdapterKind::Integrated),
            adapter("llvmpipe", AdapterKind::Software),
            adapter("SwiftShader", AdapterKind::Software),
        ]
    }

    fn parsed(text: &str) -> Result<WgslDevice, DeviceError> {
        let machine = machine();
        parse(text, || &machine)
    }

    fn settled(value: &str) -> Result<Automatic, DeviceError> {
        let machine = machine();
        resolve_auto(Some(value.to_owned()), || &machine)
    }

    fn never() -> &'static [AdapterInfo] {
        panic!("the adapters were asked for")
    }

    #[test]
    fn devices_are_where_their_words_say() {
        let expected = [
            (WgslDevice::Auto, ResolvedDevice::Adapter(0)),
            (WgslDevice::Cpu, ResolvedDevice::Cpu),
            (WgslDevice::Gpu(2), ResolvedDevice::Adapter(2)),
            (WgslDevice::Discrete(0), ResolvedDevice::Adapter(0)),
            (WgslDevice::Integrated(1), ResolvedDevice::Adapter(2)),
            (WgslDevice::Software, ResolvedDevice::Adapter(3)),
        ];
        for (device, place) in expected {
            assert_eq!(locate(device, &machine()).unwrap(), place, "{device}");
        }
    }

    #[test]
    fn every_listed_word_leads_to_its_adapter() {
        for index in 0..5 {
            for word in selectors(&machine(), index) {
                assert_eq!(locate(word, &machine()).unwrap(), ResolvedDevice::Adapter(index));
            }
        }
    }

    #[test]
    fn a_number_past_the_last_is_an_error_that_lists_what_is_there() {
        for device in [WgslDevice::Gpu(3), WgslDevice::Discrete(1), WgslDevice::Virtual(0)] {
            let text = locate(device, &machine()).unwrap_err().to_string();
            assert!(text.contains(&format!("`{device}`")), "{text}");
            for part in ["gpu:2, integrated:1", "UHD Graphics", "Vulkan", "name:TEXT"] {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
        }
    }

    #[test]
    fn only_a_name_asks_for_the_adapters() {
        for text in ["auto", "cpu", "gpu:7", "software"] {
            assert!(parse(text, never).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_takes_the_best_ranked_match() {
        assert_eq!(parsed("name:radeon").unwrap(), WgslDevice::Gpu(0));
        assert_eq!(parsed("name:GRAPHICS").unwrap(), WgslDevice::Gpu(1));
        assert_eq!(parsed("name:llvm").unwrap(), WgslDevice::Software);
    }

    #[test]
    fn a_name_that_no_word_reaches_is_an_error() {
        for text in ["name:arc", "name:swift"] {
            let error = parsed(text).unwrap_err();
            assert!(matches!(error, DeviceError::NoSuchName { .. }), "{error}");
            assert!(error.to_string().contains("SwiftShader"), "{error}");
        }
    }

    #[test]
    fn an_unknown_word_lists_the_known_ones() {
        let text = parsed("cuda").unwrap_err().to_string();
        let expected = "\
            `cuda` is not a word for a device.\n\
            Devices here:\n  \
            \u{20}  device               name                         kind        API\n  \
            0  gpu:0, discrete:0    Radeon RX                    discrete    Vulkan\n  \
            1  gpu:1, integrated:0  Radeon Graphics              integrated  Vulkan\n  \
            2  gpu:2, integrated:1  UHD Graphics                 integrated  Vulkan\n  \
            3  software             llvmpipe                     software    Vulkan\n  \
            4  -                    SwiftShader                  software    Vulkan\n  \
            -  cpu                  no GPU: every op on the CPU  cpu         -\n\
            Words accepted: auto, cpu, gpu or gpu:N, discrete:N, integrated:N, virtual:N, \
            software, name:TEXT (TEXT is a part of the adapter's name).";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_the_variable_rank_decides() {
        let machine = machine();
        for unset in [None, Some(String::new()), Some("  ".to_owned())] {
            let automatic = resolve_auto(unset, || &machine).unwrap();
            assert_eq!(automatic.device, WgslDevice::Gpu(0));
            assert_eq!(automatic.place, ResolvedDevice::Adapter(0));
            assert_eq!(automatic.environment, None);
        }
    }

    #[test]
    fn for_want_of_a_gpu_it_is_the_cpu() {
        let none: &[AdapterInfo] = &[];
        for value in [None, Some("auto".to_owned())] {
            let automatic = resolve_auto(value, || none).unwrap();
            assert_eq!(automatic.device, WgslDevice::Cpu);
            assert_eq!(automatic.place, ResolvedDevice::Cpu);
            assert!(automatic.no_gpu_found);
        }
    }

    #[test]
    fn the_variable_says_what_automatic_means() {
        let automatic = settled("integrated:1").unwrap();
        assert_eq!(automatic.device, WgslDevice::Integrated(1));
        assert_eq!(automatic.place, ResolvedDevice::Adapter(2));
        assert_eq!(automatic.reason, "BURN_WGSL_DEVICE=integrated:1 asks for it");
        assert_eq!(settled("auto").unwrap().device, WgslDevice::Gpu(0));
    }

    #[test]
    fn cpu_in_the_variable_touches_no_driver() {
        let automatic = resolve_auto(Some("cpu".to_owned()), never).unwrap();
        assert_eq!(automatic.place, ResolvedDevice::Cpu);
        assert!(!automatic.no_gpu_found);
    }

    #[test]
    fn a_wrong_variable_is_an_error_that_names_it() {
        for value in ["cuda", "gpu:9", "name:arc"] {
            let text = settled(value).unwrap_err().to_string();
            assert!(text.contains(DEVICE_VARIABLE), "{text}");
            assert!(text.contains(value), "{text}");
            assert!(text.contains("gpu:0, discrete:0"), "{text}");
        }
    }
}
