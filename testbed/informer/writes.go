// Checks of writes (patches, apply, conflicts, leases, events) and of discovery.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

func patches(b environment) error {
	pods := b.client.CoreV1().Pods(b.namespace)
	if err := b.until("service account", func() bool {
		_, err := b.client.CoreV1().ServiceAccounts(b.namespace).Get(b, "default", metav1.GetOptions{})
		return err == nil
	}); err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "patched"},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{"no": "where"}, Containers: []corev1.Container{{Name: "one", Image: "a"}, {Name: "two", Image: "b"}}},
	}
	if _, err := pods.Create(b, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, patch := range []struct {
		kind types.PatchType
		text string
	}{
		{types.JSONPatchType, `[{"op": "test", "path": "/spec/containers/1/image", "value": "b"}, {"op": "add", "path": "/metadata/labels", "value": {"json": "yes", "gone": "soon"}}]`},
		{types.MergePatchType, `{"metadata": {"labels": {"merge": "yes", "gone": null}}}`},
		{types.StrategicMergePatchType, `{"spec": {"containers": [{"name": "two", "image": "c"}]}}`},
	} {
		if _, err := pods.Patch(b, "patched", patch.kind, []byte(patch.text), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", patch.kind, err)
		}
	}
	applied := apply.Pod("patched", b.namespace).WithLabels(map[string]string{"apply": "yes"})
	found, err := pods.Apply(b, applied, metav1.ApplyOptions{FieldManager: "informer"})
	if err != nil {
		return err
	}
	labels, containers := found.Labels, found.Spec.Containers
	if labels["json"] != "yes" || labels["merge"] != "yes" || labels["apply"] != "yes" || len(labels) != 3 {
		return fmt.Errorf("the labels are %v", labels)
	}
	if len(containers) != 2 || containers[0].Image != "a" || containers[1].Image != "c" {
		return fmt.Errorf("the containers are %v", containers)
	}
	zero := int64(0)
	return pods.Delete(b, "patched", metav1.DeleteOptions{GracePeriodSeconds: &zero})
}

func appliedConflict(b environment) error {
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	configuration := func(word string) *apply.ConfigMapApplyConfiguration {
		return apply.ConfigMap("owned", b.namespace).WithData(map[string]string{"word": word})
	}
	if _, err := maps.Apply(b, configuration("first"), metav1.ApplyOptions{FieldManager: "first"}); err != nil {
		return err
	}
	_, err := maps.Apply(b, configuration("second"), metav1.ApplyOptions{FieldManager: "second"})
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("the apply of another field manager returned %v", err)
	}
	forced, err := maps.Apply(b, configuration("second"), metav1.ApplyOptions{FieldManager: "second", Force: true})
	if err == nil && forced.Data["word"] != "second" {
		err = fmt.Errorf("the data is %v", forced.Data)
	}
	return err
}

func staleUpdate(b environment) error {
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	stale, err := b.configMap("counted", nil)
	if err != nil {
		return err
	}
	// Ten concurrent writers, each with a read before the write.
	var group sync.WaitGroup
	results := make(chan error, 10)
	for range 10 {
		group.Go(func() {
			backoff := retry.DefaultBackoff
			backoff.Steps = 50
			results <- retry.RetryOnConflict(backoff, func() error {
				object, err := maps.Get(b, "counted", metav1.GetOptions{})
				if err != nil {
					return err
				}
				object.Data["n"] += "+"
				_, err = maps.Update(b, object, metav1.UpdateOptions{})
				return err
			})
		})
	}
	group.Wait()
	close(results)
	for err := range results {
		if err != nil {
			return err
		}
	}
	if _, err := maps.Update(b, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update returned %v", err)
	}
	object, err := maps.Get(b, "counted", metav1.GetOptions{})
	if err == nil && object.Data["n"] != "0++++++++++" {
		err = fmt.Errorf("ten writers produced %q", object.Data["n"])
	}
	return err
}

func leases(b environment) error {
	var lock sync.Mutex
	var leaderHistory []string
	candidate := func(ctx context.Context, name string) error {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: b.namespace},
				Client:     b.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					lock.Lock()
					defer lock.Unlock()
					leaderHistory = append(leaderHistory, name)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err == nil {
			go elector.Run(ctx)
		}
		return err
	}
	leaders := func(count int) func() bool {
		return func() bool {
			lock.Lock()
			defer lock.Unlock()
			return len(leaderHistory) == count
		}
	}
	first, release := context.WithCancel(b)
	if err := candidate(first, "first"); err != nil {
		release()
		return err
	}
	err := b.until("leader", leaders(1))
	if err == nil {
		err = candidate(b, "second")
	}
	release()
	if err == nil {
		err = b.until("second leader", leaders(2))
	}
	if err != nil {
		return err
	}
	lease, err := b.client.CoordinationV1().Leases(b.namespace).Get(b, "leader", metav1.GetOptions{})
	if err == nil && (*lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions < 1) {
		err = fmt.Errorf("the lease has the spec %v", lease.Spec)
	}
	return err
}

func events(b environment) error {
	object, err := b.configMap("eventful", nil)
	if err != nil {
		return err
	}
	object.APIVersion, object.Kind = "v1", "ConfigMap"
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: b.client.CoreV1().Events(b.namespace)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "informer"})
	for range 3 {
		recorder.Event(object, corev1.EventTypeNormal, "Tried", "the same again")
	}
	return b.until("event that was counted three times", func() bool {
		list, err := b.client.CoreV1().Events(b.namespace).List(b, metav1.ListOptions{FieldSelector: "involvedObject.name=eventful,reason=Tried"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 3
	})
}

func discovery(b environment) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(b.client.Discovery()))
	for kind, resource := range map[schema.GroupKind]string{
		{Kind: "Pod"}: "pods", {Group: "batch", Kind: "Job"}: "jobs", {Group: "coordination.k8s.io", Kind: "Lease"}: "leases",
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "customresourcedefinitions",
	} {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil {
			return err
		}
		if mapping.Resource.Resource != resource {
			return fmt.Errorf("%v is %v", kind, mapping.Resource)
		}
	}
	return nil
}
