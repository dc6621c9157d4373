package gc

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// keepDead is how many dead instances of each container stay (GC-1).
const keepDead = 1

// Choice is what to remove, by ID, in order.
type Choice struct {
	Containers []string
	Sandboxes  []string
}

// Victims chooses among the pods that have a worker (GC-1, GC-2, GC-6). Nothing
// that runs, may run or is about to start is chosen, and the newest instance of
// each container and the newest sandbox of each pod stay: the status is made
// from them. Pods without a worker are not garbage but strays, which end first.
func Victims(pods map[types.UID]pod.Observation, worked func(types.UID) bool) Choice {
	var c Choice
	for _, uid := range sortedUIDs(pods) {
		if worked(uid) {
			c.pod(pods[uid])
		}
	}
	return c
}

func sortedUIDs(pods map[types.UID]pod.Observation) []types.UID {
	uids := make([]types.UID, 0, len(pods))
	for uid := range pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

func (c *Choice) pod(o pod.Observation) {
	dead := map[string]int{}
	newest := map[string]bool{}
	used := map[string]bool{} // sandboxes that have containers
	var victims []pod.Container
	for _, x := range o.Containers { // newest first
		first := !newest[x.Name]
		newest[x.Name] = true
		removable := x.State == pod.StateExited || (x.State == pod.StateCreated && !first)
		if removable {
			dead[x.Name]++
		}
		if removable && (dead[x.Name] > keepDead || (!first && x.State == pod.StateCreated)) {
			victims = append(victims, x)
			continue
		}
		used[x.SandboxID] = true
	}
	slices.SortFunc(victims, func(a, b pod.Container) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})
	for _, v := range victims {
		c.Containers = append(c.Containers, v.ID)
	}
	for i, s := range o.Sandboxes {
		if i > 0 && !s.Ready && !used[s.ID] {
			c.Sandboxes = append(c.Sandboxes, s.ID)
		}
	}
}
