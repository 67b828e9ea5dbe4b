//! What the launcher of a job says of it.

/// Variables by which launchers tell a process how many ranks they have started: of Open MPI, of MPICH and Intel MPI,
/// and of MVAPICH.
const WORLD: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

/// The first of Slurm's step numbers for shells: of an interactive one, and of a batch script.
const FIRST_SHELL: usize = 4_294_967_290;

/// Returns the variable of the launcher, and the ranks that it has started.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    let number = |name: &str| variable(name)?.parse().ok();
    let of_mpi = WORLD.iter().find_map(|name| Some((*name, number(name)?)));
    // A program that is alone in a batch script has the variables of its job, but is no step of it.
    // In a heterogeneous job, the number is that of a component.
    let is_step = variable("SLURM_PROCID").is_some()
        && variable("SLURM_HET_SIZE").is_none()
        && number("SLURM_STEP_ID").is_some_and(|step| step < FIRST_SHELL);
    of_mpi.or_else(|| match is_step {
        true => Some(("SLURM_STEP_NUM_TASKS", number("SLURM_STEP_NUM_TASKS")?)),
        false => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_variables() {
        let found = |variables: &[(&str, &str)]| {
            launched(|name| {
                let value = variables.iter().find(|(other, _)| *other == name);
                value.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "4")]), Some(("OMPI_COMM_WORLD_SIZE", 4)));
        assert_eq!(found(&[("PMI_SIZE", "2")]), Some(("PMI_SIZE", 2)));
        assert_eq!(found(&[("PMI_SIZE", "two")]), None);
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_STEP_ID", "0")];
        assert_eq!(found(&step), Some(("SLURM_STEP_NUM_TASKS", 8)));
        let het = [step[0], step[1], step[2], ("SLURM_HET_SIZE", "2")];
        assert_eq!(found(&het), None);
        // The batch script itself.
        let script =
            [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_STEP_ID", "4294967291")];
        assert_eq!(found(&script), None);
    }
}
