package sim

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

var errDiskFull = errors.New("cannot write: no space left on device")

// disk is the durable store: instances as JSON, so whatever is cache is lost
// with the agent.
type disk struct {
	w         *world
	full      bool
	instances map[string]stored
}

// stored is one instance: its specs and its record, written apart.
type stored struct{ specs, record []byte }

// put stores a whole instance at once, as the agent does before a worker starts.
func (d *disk) put(in pod.Instance) error {
	if d.full {
		return errDiskFull
	}
	rec := in.Record
	in.Record = pod.Record{}
	d.instances[string(in.Pod.UID)] = stored{specs: encode(in), record: encode(rec)}
	d.w.truth.durable(in.Pod.UID, rec)
	return nil
}

// putPod replaces the specs of an instance.
func (d *disk) putPod(in pod.Instance) {
	old, ok := d.instances[string(in.Pod.UID)]
	if !ok {
		return // it is on its way
	}
	in.Record = pod.Record{}
	d.instances[string(in.Pod.UID)] = stored{specs: encode(in), record: old.record}
}

// putRecord stores a record after a while. A write that is under way when the
// agent dies may or may not be on the disk afterwards.
func (d *disk) putRecord(uid types.UID, rec pod.Record, text []byte, done func(error)) {
	gen := d.w.gen
	d.w.after(d.w.between(0, 5*time.Millisecond), func() {
		if gen != d.w.gen && d.w.chance(0.5) {
			return
		}
		old, known := d.instances[string(uid)]
		if d.full || !known {
			err := errDiskFull
			if !known {
				err = errors.New("cannot write: there is no such instance")
			}
			if gen == d.w.gen {
				done(err)
			}
			return
		}
		if gen != d.w.gen && d.w.agent != nil {
			return // the next agent has the file by now
		}
		d.instances[string(uid)] = stored{specs: old.specs, record: text}
		d.w.truth.durable(uid, rec)
		if gen == d.w.gen {
			done(nil)
		}
	})
}

func (d *disk) remove(uid types.UID) {
	if !d.full {
		delete(d.instances, string(uid))
	}
}

// all returns what a new agent reads.
func (d *disk) all() []pod.Instance {
	var list []pod.Instance
	for _, s := range d.instances {
		list = append(list, s.decode())
	}
	slices.SortFunc(list, func(a, b pod.Instance) int {
		if c := pod.KeyOf(a.Pod).Compare(pod.KeyOf(b.Pod)); c != 0 {
			return c
		}
		return compareUIDs(a.Pod.UID, b.Pod.UID)
	})
	return list
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func (s stored) decode() pod.Instance {
	var in pod.Instance
	if err := json.Unmarshal(s.specs, &in); err != nil {
		panic(err)
	}
	in.Record = pod.Record{}
	if err := json.Unmarshal(s.record, &in.Record); err != nil {
		panic(err)
	}
	return in
}
