//! Resolves devices among ranked adapters, as pure functions of their info.

use super::hosts::{FIRST_HOST, info_of};
use super::selector::{DEVICE_VARIABLE, Selector, parse_selector};
use super::{
    AdapterInfo, AdapterKind, Choice, DeviceError, DeviceList, WgslDevice, choose, selectors,
};

/// The CPU or the adapter that a device selects.
///
/// ```no_run
/// use burn_wgsl::WgslDevice;
/// use burn_wgsl::device::{ResolvedDevice, adapters};
///
/// match WgslDevice::default().resolve()? {
///     ResolvedDevice::Adapter(index) => println!("{}", adapters()[index].info.name),
///     ResolvedDevice::Cpu => println!("the CPU"),
/// }
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolvedDevice {
    /// The CPU, without any adapter.
    Cpu,
    /// The index of an adapter in the ranked list, or of a device of the program, which come after all adapters.
    Adapter(usize),
}

/// The device that [`WgslDevice::Auto`] selects in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automatic {
    /// The selected device, never `Auto`.
    pub device: WgslDevice,
    /// The CPU or the adapter of that device.
    pub resolved: ResolvedDevice,
    /// The reason for the selection, for messages.
    pub reason: String,
    /// The value of [`DEVICE_VARIABLE`], if it is set and not empty.
    pub environment: Option<String>,
    /// Whether the CPU is selected because there is no usable GPU. False if the environment
    /// variable selects the CPU.
    pub no_usable_gpu: bool,
}

/// Parses a device selector. Calls `adapters` only for `name:TEXT` and for errors.
pub(super) fn parse_device<'a, A>(
    text: &str,
    adapters: impl FnOnce() -> &'a [A],
) -> Result<WgslDevice, DeviceError>
where
    A: AsRef<AdapterInfo> + 'a,
{
    match parse_selector(text) {
        Some(Selector::Device(device)) => Ok(device),
        Some(Selector::Name(name)) => {
            let ranked = adapters();
            find_by_name(&name, ranked)
                .ok_or_else(|| DeviceError::NoSuchName { name, available: DeviceList::new(ranked) })
        }
        None => Err(DeviceError::UnknownSelector {
            text: text.to_owned(),
            available: DeviceList::new(adapters()),
        }),
    }
}

/// Returns the first ranked adapter that has a selector and `name`, in lower case, in its name.
fn find_by_name<A: AsRef<AdapterInfo>>(name: &str, ranked: &[A]) -> Option<WgslDevice> {
    let has_name = |i: &usize| ranked[*i].as_ref().name.to_ascii_lowercase().contains(name);
    let mut matching = (0..ranked.len()).filter(has_name);
    matching.find_map(|i| selectors(ranked, i).first().copied())
}

/// Resolves a device among ranked adapters.
///
/// `Auto` is resolved by rank alone; [`resolve_auto`] also considers the environment variable.
pub(super) fn resolve_among<A: AsRef<AdapterInfo>>(
    device: WgslDevice,
    ranked: &[A],
) -> Result<ResolvedDevice, DeviceError> {
    let nth_of_kind = |n: usize, kind: AdapterKind| {
        (0..ranked.len()).filter(|&i| ranked[i].as_ref().kind == kind).nth(n)
    };
    let index = match device {
        WgslDevice::Cpu => return Ok(ResolvedDevice::Cpu),
        WgslDevice::Auto => {
            let choice = choose(ranked);
            return Ok(choice.adapter.map_or(ResolvedDevice::Cpu, ResolvedDevice::Adapter));
        }
        // GPUs are ranked before software adapters, so the GPU index is also the adapter index.
        WgslDevice::Gpu(n) => {
            let adapter = ranked.get(n).map(AsRef::as_ref);
            adapter.filter(|info| info.kind != AdapterKind::Software).map(|_| n)
        }
        WgslDevice::Discrete(n) => nth_of_kind(n, AdapterKind::Discrete),
        WgslDevice::Integrated(n) => nth_of_kind(n, AdapterKind::Integrated),
        WgslDevice::Virtual(n) => nth_of_kind(n, AdapterKind::Virtual),
        WgslDevice::Software => nth_of_kind(0, AdapterKind::Software),
        WgslDevice::Host(n) => n.checked_add(FIRST_HOST).filter(|&index| info_of(index).is_some()),
    };
    index
        .map(ResolvedDevice::Adapter)
        .ok_or_else(|| DeviceError::NoSuchDevice { device, available: DeviceList::new(ranked) })
}

/// Resolves `Auto`. `environment` is the value of [`DEVICE_VARIABLE`].
///
/// Does not call `adapters` if the value is `cpu`.
pub(super) fn resolve_auto<'a, A>(
    environment: Option<String>,
    adapters: impl Fn() -> &'a [A],
) -> Result<Automatic, DeviceError>
where
    A: AsRef<AdapterInfo> + 'a,
{
    let environment = environment.filter(|value| !value.trim().is_empty());
    let Some(value) = environment else {
        return Ok(resolve_by_rank(adapters(), None));
    };
    let environment_error =
        |cause| DeviceError::Environment { value: value.clone(), cause: Box::new(cause) };
    let (device, resolved) = match parse_device(&value, &adapters).map_err(environment_error)? {
        WgslDevice::Auto => return Ok(resolve_by_rank(adapters(), Some(value))),
        WgslDevice::Cpu => (WgslDevice::Cpu, ResolvedDevice::Cpu),
        device => {
            let resolved = resolve_among(device, adapters()).map_err(environment_error)?;
            (device, resolved)
        }
    };
    Ok(Automatic {
        device,
        resolved,
        reason: format!("{DEVICE_VARIABLE}={value} selects it"),
        environment: Some(value),
        no_usable_gpu: false,
    })
}

/// Returns the devices for a program that uses several: the device that the environment variable
/// selects; otherwise all usable GPUs, or else the CPU. All of them are canonical selectors.
///
/// Does not call `adapters` if the variable is `cpu`.
pub(super) fn devices_of<'a, A>(
    automatic: &Automatic,
    adapters: impl Fn() -> &'a [A],
) -> Vec<WgslDevice>
where
    A: AsRef<AdapterInfo> + 'a,
{
    let variable = automatic.environment.as_deref().and_then(parse_selector);
    match (variable, automatic.resolved) {
        (None | Some(Selector::Device(WgslDevice::Auto)), _) => {}
        (_, ResolvedDevice::Cpu) => return vec![WgslDevice::Cpu],
        (_, ResolvedDevice::Adapter(index)) => {
            return selectors(adapters(), index).into_iter().take(1).collect();
        }
    }
    let ranked = adapters();
    let is_usable = |&index: &usize| {
        let info = ranked[index].as_ref();
        info.kind != AdapterKind::Software && info.limits.shortfalls().is_empty()
    };
    let mut devices: Vec<WgslDevice> =
        (0..ranked.len()).filter(is_usable).map(WgslDevice::Gpu).collect();
    if devices.is_empty() {
        devices.push(automatic.device);
    }
    devices
}

/// Resolves `Auto` to the first usable GPU, or else to the CPU.
fn resolve_by_rank<A: AsRef<AdapterInfo>>(ranked: &[A], environment: Option<String>) -> Automatic {
    let Choice { adapter, reason } = choose(ranked);
    Automatic {
        // GPUs are ranked before software adapters, so the adapter index is also the GPU index.
        device: adapter.map_or(WgslDevice::Cpu, WgslDevice::Gpu),
        resolved: adapter.map_or(ResolvedDevice::Cpu, ResolvedDevice::Adapter),
        reason,
        environment,
        no_usable_gpu: adapter.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Api;
    use super::*;

    fn adapter(name: &str, kind: AdapterKind) -> AdapterInfo {
        AdapterInfo { name: name.to_owned(), kind, api: Api::Vulkan, ..AdapterInfo::default() }
    }

    /// Returns one discrete, two integrated and two software adapters, in rank order.
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
        parse_device(text, || &machine)
    }

    fn auto(value: &str) -> Result<Automatic, DeviceError> {
        let machine = machine();
        resolve_auto(Some(value.to_owned()), || &machine)
    }

    fn must_not_enumerate() -> &'static [AdapterInfo] {
        panic!("the adapters were enumerated")
    }

    #[test]
    fn devices_resolve_to_their_adapters() {
        let expected = [
            (WgslDevice::Auto, ResolvedDevice::Adapter(0)),
            (WgslDevice::Cpu, ResolvedDevice::Cpu),
            (WgslDevice::Gpu(2), ResolvedDevice::Adapter(2)),
            (WgslDevice::Discrete(0), ResolvedDevice::Adapter(0)),
            (WgslDevice::Integrated(1), ResolvedDevice::Adapter(2)),
            (WgslDevice::Software, ResolvedDevice::Adapter(3)),
        ];
        for (device, resolved) in expected {
            assert_eq!(resolve_among(device, &machine()).unwrap(), resolved, "{device}");
        }
    }

    #[test]
    fn every_listed_selector_resolves_to_its_adapter() {
        for index in 0..5 {
            for selector in selectors(&machine(), index) {
                let resolved = resolve_among(selector, &machine()).unwrap();
                assert_eq!(resolved, ResolvedDevice::Adapter(index));
            }
        }
    }

    #[test]
    fn an_index_out_of_range_is_an_error_that_lists_the_devices() {
        for device in [WgslDevice::Gpu(3), WgslDevice::Discrete(1), WgslDevice::Virtual(0)] {
            let text = resolve_among(device, &machine()).unwrap_err().to_string();
            assert!(text.contains(&format!("`{device}`")), "{text}");
            for part in ["gpu:2, integrated:1", "UHD Graphics", "Vulkan", "name:TEXT"] {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
        }
    }

    #[test]
    fn only_a_name_enumerates_the_adapters() {
        for text in ["auto", "cpu", "gpu:7", "software"] {
            assert!(parse_device(text, must_not_enumerate).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_selects_the_first_ranked_match() {
        assert_eq!(parsed("name:radeon").unwrap(), WgslDevice::Gpu(0));
        assert_eq!(parsed("name:GRAPHICS").unwrap(), WgslDevice::Gpu(1));
        assert_eq!(parsed("name:llvm").unwrap(), WgslDevice::Software);
    }

    #[test]
    fn a_name_without_a_selectable_match_is_an_error() {
        for text in ["name:arc", "name:swift"] {
            let error = parsed(text).unwrap_err();
            assert!(matches!(error, DeviceError::NoSuchName { .. }), "{error}");
            assert!(error.to_string().contains("SwiftShader"), "{error}");
        }
    }

    #[test]
    fn an_unknown_selector_is_an_error_that_lists_devices_and_selectors() {
        let text = parsed("cuda").unwrap_err().to_string();
        let expected = "\
            `cuda` is not a device selector.\n\
            Devices here:\n  \
            \u{20}  device               name                    kind        API\n  \
            0  gpu:0, discrete:0    Radeon RX               discrete    Vulkan\n  \
            1  gpu:1, integrated:0  Radeon Graphics         integrated  Vulkan\n  \
            2  gpu:2, integrated:1  UHD Graphics            integrated  Vulkan\n  \
            3  software             llvmpipe                software    Vulkan\n  \
            4  -                    SwiftShader             software    Vulkan\n  \
            -  cpu                  all ops run on the CPU  cpu         -\n\
            Use one of these selectors: auto, cpu, gpu or gpu:N, discrete:N, integrated:N, \
            virtual:N, software, name:TEXT (TEXT is part of an adapter's name). [BW05]";
        assert_eq!(text, expected);
    }

    #[test]
    fn auto_is_resolved_by_rank_without_the_variable() {
        let machine = machine();
        for unset in [None, Some(String::new()), Some("  ".to_owned())] {
            let automatic = resolve_auto(unset, || &machine).unwrap();
            assert_eq!(automatic.device, WgslDevice::Gpu(0));
            assert_eq!(automatic.resolved, ResolvedDevice::Adapter(0));
            assert_eq!(automatic.environment, None);
        }
    }

    #[test]
    fn auto_is_the_cpu_without_a_gpu() {
        let none: &[AdapterInfo] = &[];
        for value in [None, Some("auto".to_owned())] {
            let automatic = resolve_auto(value, || none).unwrap();
            assert_eq!(automatic.device, WgslDevice::Cpu);
            assert_eq!(automatic.resolved, ResolvedDevice::Cpu);
            assert!(automatic.no_usable_gpu);
        }
    }

    #[test]
    fn the_variable_sets_the_device_of_auto() {
        let automatic = auto("integrated:1").unwrap();
        assert_eq!(automatic.device, WgslDevice::Integrated(1));
        assert_eq!(automatic.resolved, ResolvedDevice::Adapter(2));
        assert_eq!(automatic.reason, "BURN_WGSL_DEVICE=integrated:1 selects it");
        assert_eq!(auto("auto").unwrap().device, WgslDevice::Gpu(0));
    }

    #[test]
    fn the_variable_set_to_cpu_enumerates_no_adapters() {
        let automatic = resolve_auto(Some("cpu".to_owned()), must_not_enumerate).unwrap();
        assert_eq!(automatic.resolved, ResolvedDevice::Cpu);
        assert!(!automatic.no_usable_gpu);
    }

    #[test]
    fn the_devices_of_auto_are_all_usable_gpus_or_the_one_that_the_variable_selects() {
        let devices = |variable: Option<&str>, machine: &[AdapterInfo]| {
            let automatic = resolve_auto(variable.map(str::to_owned), || machine).unwrap();
            devices_of(&automatic, || machine)
        };
        let gpus = [WgslDevice::Gpu(0), WgslDevice::Gpu(1), WgslDevice::Gpu(2)];
        assert_eq!(devices(None, &machine()), gpus);
        assert_eq!(devices(Some("auto"), &machine()), gpus);
        assert_eq!(devices(Some("integrated:1"), &machine()), [WgslDevice::Gpu(2)]);
        assert_eq!(devices(Some("name:uhd"), &machine()), [WgslDevice::Gpu(2)]);
        assert_eq!(devices(Some("cpu"), &machine()), [WgslDevice::Cpu]);
        assert_eq!(devices(None, &machine()[3..]), [WgslDevice::Cpu]);
        let mut below_requirements = machine();
        below_requirements[1].limits.storage_buffers_per_stage = 4;
        assert_eq!(devices(None, &below_requirements), [WgslDevice::Gpu(0), WgslDevice::Gpu(2)]);
        let automatic = resolve_auto(Some("cpu".to_owned()), must_not_enumerate).unwrap();
        assert_eq!(devices_of(&automatic, must_not_enumerate), [WgslDevice::Cpu]);
    }

    #[test]
    fn an_invalid_variable_is_an_error_that_names_it() {
        for value in ["cuda", "gpu:9", "name:arc"] {
            let text = auto(value).unwrap_err().to_string();
            assert!(text.contains(DEVICE_VARIABLE), "{text}");
            assert!(text.contains(value), "{text}");
            assert!(text.contains("gpu:0, discrete:0"), "{text}");
        }
    }
}
