package preflight

import (
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// parseVersion reads the first two numbers of versions such as 1.6.20~ds1,
// v1.7.2 and 2.4.2+unknown.
func parseVersion(version string) (major, minor int, known bool) {
	_, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor)
	return major, minor, err == nil
}

// supportEnds returns the month in which upstream ends a release of containerd,
// from its table of releases.
func supportEnds(major, minor int) (end time.Time, known bool) {
	ends := map[[2]int]string{
		{1, 6}: "2025-08", {1, 7}: "2026-09", {2, 0}: "2027-03", {2, 1}: "2026-07", {2, 2}: "2026-11", {2, 3}: "2028-04", {2, 4}: "2027-05",
	}
	month, known := ends[[2]int{major, minor}]
	if major < 1 || (major == 1 && minor < 6) {
		month, known = "2023-02", true // the last of them
	}
	if !known {
		return time.Time{}, false // newer than this program
	}
	end, err := time.Parse("2006-01", month)
	return end, err == nil
}

func rateVersion(now time.Time, v *runtimeapi.VersionResponse) Result {
	const name = "runtime"
	who := fmt.Sprintf("%s %s, CRI %s", v.GetRuntimeName(), v.GetRuntimeVersion(), v.GetRuntimeApiVersion())
	if v.GetRuntimeApiVersion() != "v1" {
		return fail(name, "install containerd 1.6 or newer, or another runtime with CRI v1", "%s: nodelet needs CRI v1", who)
	}
	major, minor, known := parseVersion(v.GetRuntimeVersion())
	if v.GetRuntimeName() != "containerd" || !known {
		return ok(name, "%s", who)
	}
	end, known := supportEnds(major, minor)
	if known && now.After(end.AddDate(0, 1, 0)) {
		return warn(name, "let the distribution give security fixes, or install a newer containerd",
			"%s; containerd %d.%d has had no fixes from its authors since %s", who, major, minor, end.Format("January 2006"))
	}
	return ok(name, "%s", who)
}
