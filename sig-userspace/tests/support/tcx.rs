//! What is attached to the TC hooks of a device.

/// Names of the programs at TC ingress and egress of a device in the namespace of this thread.
pub(crate) fn tcx_programs(device: &str) -> Vec<String> {
    use aya::programs::{SchedClassifier, TcAttachType};
    let hooks = [TcAttachType::Ingress, TcAttachType::Egress];
    let programs = hooks.map(|hook| {
        let (_, programs) = SchedClassifier::query_tcx(device, hook).expect("TCX");
        programs
    });
    let name =
        |program: &aya::programs::ProgramInfo| program.name_as_str().unwrap_or_default().to_owned();
    programs.iter().flatten().map(name).collect()
}
