package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// backoffKey binds a restart delay to what would run: another image or other
// resources start without delay (BO-1).
func backoffKey(c *corev1.Container) string {
	return c.Image + " " + c.Resources.String()
}

// backoffOver reports whether the container may be started again. The delay
// counts from the end of the last instance and grows once per restart (BO-2,
// BO-3); its expiry is an exact wake-up.
func (b *builder) backoffOver(c *corev1.Container) bool {
	cr := b.rec.Container(c.Name)
	ended := cr.Exit
	if ended == nil {
		ended = cr.Previous // after a restart of all containers
	}
	if ended == nil || cr.Backoff.Charged == ended.ContainerID {
		return true
	}
	if cr.Replacing == ended.ContainerID && ended.Image != c.Image {
		return true // a swap starts with a clean slate (SWP-4)
	}
	known := cr.Backoff.Key == backoffKey(c) && cr.Backoff.Updated.Since(ended.At) <= b.Limits.BackoffReset
	if known {
		until := ended.At.Add(cr.Backoff.Delay)
		if until.Until(b.Now) > 0 {
			b.holdBackoff(c, cr, ended, until)
			return false
		}
	}
	delay := b.Limits.BackoffInitial
	if known {
		delay = cr.Backoff.Delay * 2
	}
	cr.Backoff = pod.Backoff{
		Key:     backoffKey(c),
		Delay:   min(delay, b.Limits.BackoffMax),
		Updated: b.Now,
		Charged: ended.ContainerID,
	}
	b.rec.SetContainer(c.Name, cr)
	return true
}

func (b *builder) holdBackoff(c *corev1.Container, cr pod.ContainerRecord, ended *pod.Exit, until pod.Stamp) {
	b.wake(until)
	message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		cr.Backoff.Delay, c.Name, b.Pod.Name, b.Pod.Namespace, b.Pod.UID)
	b.wait(c.Name, "CrashLoopBackOff", message)
	if cr.Backoff.Announced == ended.ContainerID {
		return
	}
	cr.Backoff.Announced = ended.ContainerID
	b.rec.SetContainer(c.Name, cr)
	b.event(c.Name, corev1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, pod.KeyOf(b.Pod)))
}

// retryAfter returns the wait after the n-th failure in a row (n from 1).
func retryAfter(n int, initial, longest time.Duration) time.Duration {
	d := initial
	for range n - 1 {
		if d > longest {
			break // further doubling would overflow
		}
		d *= 2
	}
	return min(d, longest)
}
